package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The second client differs from the first in what it is for, and in nothing else that matters.
func TestRenewalClient_options(t *testing.T) {
	node := func(retries int) *redis.Client {
		return redis.NewClient(&redis.Options{PoolSize: 30, MaxIdleConns: 20, MaxActiveConns: 40, MaxRetries: retries, Password: "p",
			DB: 3, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute})
	}
	follower := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"},
		PoolSize: 30, MaxIdleConns: 20, MaxActiveConns: 40, MaxRetries: -1, Password: "p", DB: 3,
		ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute})
	for name, c := range map[string]struct {
		client       *redis.Client
		retries      int
		life, jitter time.Duration
	}{
		"a node":               {node(0), 3, time.Hour, time.Minute},
		"a node, no replays":   {node(-1), 0, time.Hour, time.Minute},
		"Sentinel, no replays": {follower, 0, masterFor, 0},
	} {
		defer c.client.Close()
		c.client.Options().MinIdleConns = 1 // now, so that it connects to nothing
		own := renewalClient(c.client).(*redis.Client)
		defer own.Close()
		o := own.Options()
		if o.PoolSize != renewalConns || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 || !o.ContextTimeoutEnabled ||
			o.MaxRetries != c.retries || o.ConnMaxLifetime != c.life || o.ConnMaxLifetimeJitter != c.jitter || o.Password != "p" || o.DB != 3 ||
			o.PushNotificationProcessor == c.client.Options().PushNotificationProcessor ||
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: %+v", name, o)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: 30, MinIdleConns: 1, MaxIdleConns: 20,
		MaxActiveConns: 40, MaxRetries: -1, Password: "p", PushNotificationProcessor: redis.NewPushNotificationProcessor()})
	defer cluster.Close()
	own := renewalClient(cluster).(*redis.ClusterClient)
	defer own.Close()
	o := own.Options()
	if o.PoolSize != renewalConns || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 || !o.ContextTimeoutEnabled ||
		o.MaxRetries != cluster.Options().MaxRetries || o.Password != "p" ||
		o.PushNotificationProcessor != nil || o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
		t.Errorf("a Cluster: %+v", o)
	}
}
