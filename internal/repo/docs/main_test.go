package docs

import (
	"context"
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/leakcheck"
)

func TestMain(m *testing.M) {
	// Tests wait for servers and programs more than they work.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redis.SetLogger(silent{})
	leakcheck.VerifyTestMain(m)
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
