package jaeger

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}
