package belugamemory

import (
	"flag"
	"testing"

	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests wait for servers more than they work, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}
