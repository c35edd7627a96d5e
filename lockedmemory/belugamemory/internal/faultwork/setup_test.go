package faultwork

import (
	"testing"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{beluga.Role: child.Role(instance)})
	leakcheck.VerifyTestMain(m)
}
