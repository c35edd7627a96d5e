package docs

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	// Tests wait for servers and programs more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}
