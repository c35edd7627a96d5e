package jaeger

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	logging.Disable() // of go-redis
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}
