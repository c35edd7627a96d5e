package redlock

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// openNode makes a node that the test closes, with its client.
func openNode(tb testing.TB, options *redis.Options) *node {
	tb.Helper()
	client := redis.NewClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	n := newNode(client, false, &uptime{node: options.Addr, claims: &claims{}})
	tb.Cleanup(func() { _ = n.Close() })
	return n
}

// onNode are the options of a client of the shared Redis.
func onNode(tb testing.TB) *redis.Options {
	db := servers.SharedRedis(tb)
	return &redis.Options{Addr: db.Addr(), DB: db.DB(), ContextTimeoutEnabled: true}
}
