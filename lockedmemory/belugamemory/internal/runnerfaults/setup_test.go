package runnerfaults

import (
	"testing"

	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) {
	childproc.Serve(map[string]childproc.Work{"instance": childproc.Role(instance)})
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}
