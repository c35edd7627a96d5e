package redislock_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(tb testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func driversAt(addr string) drivertest.New {
	return func(tb testing.TB) driver.Driver {
		d, err := redislock.NewDriver(newClient(tb, addr))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = d.Close() })
		return d
	}
}

func TestConformance_redis(t *testing.T) {
	drivertest.Run(t, driversAt(testservers.StartRedis(t).Addr()))
}

// miniredis is what the examples embed; it is no evidence about Redis.
func TestConformance_miniredis(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	drivertest.Run(t, driversAt(server.Addr()))
}
