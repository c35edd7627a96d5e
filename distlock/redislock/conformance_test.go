package redislock_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// newClient is a client of a server, a proxy or a database, with at most one set of options.
func newClient(tb testing.TB, server interface{ Addr() string }, options ...redis.Options) *redis.Client {
	var o redis.Options
	if len(options) > 0 {
		o = options[0]
	}
	o.Addr = server.Addr()
	if db, ok := server.(*servers.Database); ok {
		o.DB = db.DB()
	}
	client := redis.NewClient(&o)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// onNode are the options of a client of the shared Redis.
func onNode(tb testing.TB) redis.UniversalOptions {
	db := servers.SharedRedis(tb)
	return redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB()}
}

// on are the options of a client of the shared "sentinel" or "cluster".
func on(topology string) redis.UniversalOptions {
	servers := servers.SharedTopology(topology)
	return redis.UniversalOptions{Addrs: servers.Addrs(), MasterName: servers.MasterName()}
}

// drivers makes drivers, each over its own client. The options choose its type, as for
// redis.NewUniversalClient.
func drivers(options redis.UniversalOptions) drivertest.New {
	return func(tb testing.TB) driver.Driver {
		client := redis.NewUniversalClient(&options)
		tb.Cleanup(func() { _ = client.Close() })
		return driverOver(tb, client)
	}
}

func driverOver(tb testing.TB, client redis.UniversalClient) driver.Driver {
	tb.Helper()
	d, err := redislock.NewDriver(client)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func TestConformance_redis(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultnet.New(t, server.Addr())
	do := func(args ...string) string {
		t.Helper()
		reply, err := server.Do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	drivertest.Run(t, drivertest.Service{
		New:     drivers(redis.UniversalOptions{Addrs: []string{proxy.Addr()}, MaxRetries: -1}),
		Restart: server.Restart,
		CutConnections: func() {
			proxy.Refuse()
			proxy.Heal()
		},
		Hang: func() func() {
			server.Pause()
			return server.Resume
		},
		DenyRight: func() func() {
			do("ACL", "SETUSER", "default", "-eval", "-evalsha")
			return func() { do("ACL", "SETUSER", "default", "+eval", "+evalsha") }
		},
		PutForeign: func(name driver.Name) func() bool {
			lock := fmt.Sprintf("%s:{%s}:lock", name.Namespace, name.Key)
			do("SET", lock, "theirs")
			return func() bool { return do("GET", lock) == "theirs" }
		},
	})
}

func TestConformance_sentinel(t *testing.T) {
	drivertest.Run(t, drivertest.Service{New: drivers(on("sentinel"))})
}

func TestConformance_cluster(t *testing.T) {
	drivertest.Run(t, drivertest.Service{New: drivers(on("cluster"))})
}

// The examples embed miniredis. It is no evidence about Redis.
func TestConformance_miniredis(t *testing.T) {
	t.Parallel()
	// Each test has its own server, because each command of miniredis reads all keys.
	var mu sync.Mutex
	servers := make(map[string]drivertest.New)
	drivertest.Run(t, drivertest.Service{New: func(tb testing.TB) driver.Driver {
		mu.Lock()
		newDriver := servers[tb.Name()]
		if newDriver == nil {
			server := miniredis.RunT(tb)
			server.ClockTTL(true)
			// miniredis runs scripts in Go, which is slow with the race detector.
			newDriver = drivers(redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: time.Minute})
			servers[tb.Name()] = newDriver
		}
		mu.Unlock()
		return newDriver(tb)
	}})
}
