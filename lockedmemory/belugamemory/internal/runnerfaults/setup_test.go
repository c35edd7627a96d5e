package runnerfaults

import (
	"testing"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"instance": child.Role(instance)})
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}
