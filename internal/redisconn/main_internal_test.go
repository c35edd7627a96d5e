package redisconn

import (
	"testing"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }
