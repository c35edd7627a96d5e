package redisconn

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/belugalock/belugalock/internal/testservers"
)

// A client of the transport has the options of the application's client, but for its repetitions.
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
		own := redis.NewClient(ownOptions(client.Options()))
		defer own.Close()
		o, of := own.Options(), client.Options()
		if o.PoolSize != 30 || o.MinIdleConns != 0 || o.MaxRetries != 0 ||
			o.PipelineReadBufferSize != 0 || o.PipelinePoolSize >= 0 || !o.ContextTimeoutEnabled || o.ReadTimeout != of.ReadTimeout ||
			o.WriteTimeout != of.WriteTimeout || o.ConnMaxLifetime != c.life || o.ConnMaxLifetimeJitter != c.jitter ||
			o.DialerRetries != 1 || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil || o.Limiter != nil ||
			o.Password != "p" || o.DB != 3 || o.ClientName != "n" ||
			o.PushNotificationProcessor == of.PushNotificationProcessor ||
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A client that follows Sentinels learns of a failover, and the clients of a transport do not.
func TestTransport_S1_followsFailovers(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	if transport.exchange("k").own {
		t.Error("calls go over a client of the transport")
	}
	client.Options().PoolSize = 0 // used up
	if !transport.exchange("k").own {
		t.Error("calls go over a client without a free connection")
	}
}

// A slow reply costs no connection, and a pipeline needs no second one.
func TestTransport_slowReply_keepsConnection(t *testing.T) {
	options, proxy := proxied(t)
	options.ClientName = "costs"
	s := open(t, options)
	connections := func() (ids []string) {
		list, err := testservers.SharedServer().Do("CLIENT", "LIST")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name=costs ") {
				id, _, _ := strings.Cut(line, " ")
				ids = append(ids, id)
			}
		}
		return ids
	}
	if _, err := s.Inspect(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := s.shared.Send(t.Context(), "", redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")); err != nil {
		t.Fatal(err)
	}
	before := connections()
	proxy.Latency(30 * time.Millisecond)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.Inspect(ctx, name); err != nil {
			t.Error(err)
		}
		cancel()
	}
	// A pipeline needs no second connection.
	if after := connections(); len(before) != 1 || len(after) != 1 || after[0] != before[0] {
		t.Errorf("connections %v before slow replies, %v after", before, after)
	}
}
