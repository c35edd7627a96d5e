package redisstore_test

import (
	"slices"
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

const docOfLock = "../../../distlock/redislock/doc.go"

// as returns options of a user with the rights. The test fails if the server refuses that user something.
func as(t *testing.T, server *servers.Redis, keys []string, rights ...[]string) redis.UniversalOptions {
	servers.SetUser(t, server, "user", keys, slices.Concat(rights...)...)
	t.Cleanup(func() {
		if refused := servers.RefusedToUsers(t, server); refused != "" {
			t.Errorf("the server has refused %s", refused)
		}
	})
	return redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "user", Password: servers.UserPassword}
}

func TestConformance_redis(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	storetest.Run(t, service(as(t, servers.StartRedis(t), []string{"session", "listed", "distlock"},
		ofStore.Needed, ofStore.Lists, ofLock.Needed, ofLock.Notified), nil))
}

func TestConformance_locksElsewhere(t *testing.T) {
	t.Parallel()
	ofStore, ofLock := servers.DocumentedRights(t, "doc.go"), servers.DocumentedRights(t, docOfLock)
	locks := as(t, servers.StartRedis(t), []string{"distlock"}, ofLock.Needed, ofLock.Notified)
	locks.ContextTimeoutEnabled = true
	storetest.Run(t, service(as(t, servers.StartRedis(t), []string{"session", "listed"}, ofStore.Needed, ofStore.Lists), &locks))
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
