package redisconn

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A connection has the options of the application's client, but for its pool and its repetitions.
func TestOwnOptions(t *testing.T) {
	cache := redis.CacheConfig{MaxEntries: 1}
	options := redis.Options{
		PoolSize: 30, MaxIdleConns: 20, MaxActiveConns: 40, MaxRetries: 5, Password: "p", DB: 3, ClientName: "n",
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
		ContextTimeoutEnabled: true, PipelineReadBufferSize: 1 << 20, DialerRetries: 7,
		ClientSideCacheConfig: &cache, ClientSideCache: redis.NewLocalCache(cache), Limiter: struct{ redis.Limiter }{},
	}
	follower := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Password: "p", DB: 3, ClientName: "n", PoolSize: 30,
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
	})
	node := redis.NewClient(&options)
	for name, c := range map[string]struct {
		client       *redis.Client
		life, jitter time.Duration
	}{
		"a node":   {node, time.Hour, time.Minute},
		"Sentinel": {follower, masterFor, 0},
	} {
		client := c.client
		defer client.Close()
		client.Options().MinIdleConns = 1 // now, so that it connects to nothing
		own := newConn(ownOptions(client.Options())).client
		defer own.Close()
		o, of := own.Options(), client.Options()
		if o.PoolSize != 1 || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 || o.MaxRetries != 0 ||
			o.PipelineReadBufferSize != 0 || o.PipelinePoolSize >= 0 || o.ContextTimeoutEnabled || o.ReadTimeout != of.ReadTimeout ||
			o.WriteTimeout != of.WriteTimeout || o.ConnMaxLifetime != c.life || o.ConnMaxLifetimeJitter != c.jitter ||
			o.DialerRetries != 1 || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil || o.Limiter != nil ||
			o.Password != "p" || o.DB != 3 || o.ClientName != "n" ||
			o.PushNotificationProcessor == of.PushNotificationProcessor ||
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A client that follows Sentinels learns of a failover, and the connections of a transport do not.
func TestTransport_S1_followsFailovers(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	if transport.queueOf("k").options != nil {
		t.Error("calls go over connections of the transport")
	}
	client.Options().PoolSize = 0 // used up
	if transport.queueOf("k").options == nil {
		t.Error("calls go over a client without a free connection")
	}
}
