package redislock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }

func newClient(tb testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// drivers makes each of them a client of its own; the options tell the kind, as for redis.NewUniversalClient.
func drivers(options redis.UniversalOptions) drivertest.New {
	return func(tb testing.TB) driver.Driver {
		client := redis.NewUniversalClient(&options)
		tb.Cleanup(func() { _ = client.Close() })
		d, err := redislock.NewDriver(client)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = d.Close() })
		return d
	}
}

func TestConformance_redis(t *testing.T) {
	drivertest.Run(t, drivers(redis.UniversalOptions{Addrs: []string{testservers.StartRedis(t).Addr()}}))
}

func TestConformance_sentinel(t *testing.T) {
	s := testservers.StartSentinel(t)
	drivertest.Run(t, drivers(redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName()}))
}

func TestConformance_cluster(t *testing.T) {
	drivertest.Run(t, drivers(redis.UniversalOptions{Addrs: testservers.StartCluster(t).Addrs()}))
}

// miniredis is what the examples embed; it is no evidence about Redis.
func TestConformance_miniredis(t *testing.T) {
	// A server for each of the tests: with every command it goes through all keys that there are.
	var mu sync.Mutex
	servers := make(map[string]drivertest.New)
	drivertest.Run(t, func(tb testing.TB) driver.Driver {
		mu.Lock()
		newDriver := servers[tb.Name()]
		if newDriver == nil {
			server := miniredis.RunT(tb)
			server.ClockTTL(true)
			// It runs scripts in Go, which takes its time with the race detector.
			newDriver = drivers(redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: time.Minute})
			servers[tb.Name()] = newDriver
		}
		mu.Unlock()
		return newDriver(tb)
	})
}
