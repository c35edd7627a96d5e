package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The second client differs from the first in what it is for, and in nothing else that matters.
func TestRenewalClient_options(t *testing.T) {
	follower := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, PoolSize: 30, MaxRetries: -1, Password: "p", DB: 3}
	for name, c := range map[string]struct {
		client  redis.UniversalClient
		retries int
		life    time.Duration
	}{
		"a node":               {redis.NewClient(&redis.Options{PoolSize: 30, Password: "p", DB: 3}), 3, 0},
		"a node, no replays":   {redis.NewClient(&redis.Options{PoolSize: 30, Password: "p", DB: 3, MaxRetries: -1}), 0, 0},
		"Sentinel, no replays": {redis.NewFailoverClient(follower), 0, masterFor},
	} {
		defer c.client.Close()
		own := renewalClient(c.client).(*redis.Client)
		defer own.Close()
		o := own.Options()
		if o.PoolSize != renewalConns || !o.ContextTimeoutEnabled || o.MaxRetries != c.retries || o.ConnMaxLifetime != c.life ||
			o.Password != "p" || o.DB != 3 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: 30, Password: "p"})
	defer cluster.Close()
	own := renewalClient(cluster).(*redis.ClusterClient)
	defer own.Close()
	if o := own.Options(); o.PoolSize != renewalConns || !o.ContextTimeoutEnabled || o.Password != "p" {
		t.Errorf("a Cluster: %+v", o)
	}
}
