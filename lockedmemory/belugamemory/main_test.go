package belugamemory

import (
	"testing"

	"github.com/belugalock/belugalock/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(m) }
