package belugamemory

import (
	"testing"

	"github.com/belugalock/belugalock/internal/watch"
)

func TestMain(m *testing.M) { watch.VerifyTestMain(m) }
