package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
)

// service is the store of a Redis. locks is the Redis of the locks; nil: the same Redis, over the
// same client.
func service(store redis.UniversalOptions, locks *redis.UniversalOptions) func(tb testing.TB) storetest.Service {
	return func(tb testing.TB) storetest.Service {
		newClient := func(options redis.UniversalOptions) redis.UniversalClient {
			client := redis.NewUniversalClient(&options)
			tb.Cleanup(func() { _ = client.Close() })
			return client
		}
		client := newClient(store)
		lockClient := client
		if locks != nil {
			lockClient = newClient(*locks)
		}
		return storetest.Service{
			Driver: func(tb testing.TB, keep storedriver.Retention) storedriver.Driver {
				d, err := redisstore.NewDriver(client, &keep)
				if err != nil {
					tb.Fatal(err)
				}
				return d
			},
			Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker {
				l, err := redislock.New(lockClient, opts)
				if err != nil {
					tb.Fatal(err)
				}
				return l
			},
		}
	}
}

func onShared(t *testing.T) redis.UniversalOptions {
	return redis.UniversalOptions{Addrs: []string{servers.SharedServer().Addr()}}
}

func TestConformance_redis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, service(onShared(t), nil))
}

func TestConformance_locksElsewhere(t *testing.T) {
	t.Parallel()
	locks := redis.UniversalOptions{Addrs: []string{servers.StartRedis(t).Addr()}, ContextTimeoutEnabled: true}
	storetest.Run(t, service(onShared(t), &locks))
}

func TestConformance_sentinel(t *testing.T) {
	t.Parallel()
	s := servers.StartSentinel(t)
	storetest.Run(t, service(redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName()}, nil))
}

func TestConformance_cluster(t *testing.T) {
	t.Parallel()
	storetest.Run(t, service(redis.UniversalOptions{Addrs: servers.StartCluster(t).Addrs()}, nil))
}

// The examples embed miniredis. It is no evidence about Redis.
func TestConformance_miniredis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	// miniredis runs scripts in Go, which is slow with the race detector.
	storetest.Run(t, service(redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: time.Minute}, nil))
}
