package redislock_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

func driverOver(tb testing.TB, client redis.UniversalClient) driver.Driver {
	tb.Helper()
	d, err := redislock.NewDriver(client)
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// namespaces are those of package drivertest.
var namespaces = []string{"drivertest", "drivertestx", "a", strings.Repeat("n", 128), strings.Repeat("[0-9a-f]", 32), strings.Repeat("[0-9a-f]", 32) + "x"}

// documented are the arguments of a server with a user who has the rights in doc.go.
func documented(t *testing.T) []string {
	rights := servers.DocumentedRights(t, "doc.go")
	return servers.UserArgs("locker", namespaces, slices.Concat(rights.Needed, rights.Notified, rights.Lists)...)
}

// The rights in doc.go are enough for the whole contract of a driver.
func TestConformance_redis(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, documented(t)...)
	proxy := faultnet.New(t, server.Addr())
	service := pooled(redis.UniversalOptions{
		Addrs: []string{proxy.Addr()}, Username: "locker", Password: servers.UserPassword, MaxRetries: -1,
	})
	service.Restart = server.Restart
	service.CutConnections = func() {
		proxy.Refuse()
		proxy.Heal()
	}
	service.Hang = func() func() {
		server.Pause()
		return server.Resume
	}
	service.DenyRight = func() func() {
		do(t, server, "ACL", "SETUSER", "locker", "-eval", "-evalsha")
		return func() {
			do(t, server, "ACL", "SETUSER", "locker", "+eval", "+evalsha")
			do(t, server, "ACL", "LOG", "RESET")
		}
	}
	service.PutForeign = func(name driver.Name) func() bool {
		lock := fmt.Sprintf("%s:{%s}:lock", name.Namespace, name.Key)
		do(t, server, "SET", lock, "theirs")
		return func() bool { return do(t, server, "GET", lock) == "theirs" }
	}
	t.Cleanup(func() {
		if refused := servers.RefusedToUsers(t, server); refused != "" {
			t.Errorf("the server has refused %s", refused)
		}
	})
	drivertest.Run(t, service)
}

func TestConformance_sentinel(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, pooled(on("sentinel")))
}

func TestConformance_cluster(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, pooled(on("cluster")))
}

// pooled is a service over clients whose pools can be used up. The options choose their type, as for
// redis.NewUniversalClient.
func pooled(options redis.UniversalOptions) drivertest.Service {
	var last atomic.Pointer[func() func()]
	return drivertest.Service{
		New: func(tb testing.TB) driver.Driver {
			client := redis.NewUniversalClient(&options)
			tb.Cleanup(func() { _ = client.Close() })
			use := func() func() { return useUp(tb, client) }
			last.Store(&use)
			return driverOver(tb, client)
		},
		UsePool: func() func() { return (*last.Load())() },
	}
}

// useUp takes all connections of a client until free is called.
func useUp(tb testing.TB, client redis.UniversalClient) (free func()) {
	var mu sync.Mutex
	var taken []*redis.Conn
	take := func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		for range node.Options().PoolSize {
			conn := node.Conn()
			taken = append(taken, conn)
			if err := conn.Time(ctx).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(tb.Context(), take)
	} else {
		err = take(tb.Context(), client.(*redis.Client))
	}
	must(tb, err)
	return func() {
		for _, conn := range taken {
			_ = conn.Close()
		}
	}
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
			newDriver = pooled(redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: time.Minute}).New
			servers[tb.Name()] = newDriver
		}
		mu.Unlock()
		return newDriver(tb)
	}})
}
