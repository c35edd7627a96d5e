package redlock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
)

// A node is a driver by itself, too.
func TestConformance_node(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
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
		New: func(tb testing.TB) driver.Driver {
			return openNode(tb, &redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		},
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
			do("SET", lockKey(name), "theirs")
			return func() bool { return do("GET", lockKey(name)) == "theirs" }
		},
	})
}
