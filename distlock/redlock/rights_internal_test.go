package redlock

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// namespaces are those of package drivertest.
var namespaces = []string{"drivertest", "a", strings.Repeat("n", 128)}

// The rights in doc.go are enough for the whole contract of a driver.
func TestConformance_documentedRights(t *testing.T) {
	t.Parallel()
	quorum := servers.StartQuorum(t, 3)
	rights := servers.DocumentedRights(t, "doc.go")
	for _, node := range quorum.Nodes() {
		servers.SetUser(t, node, "locker", namespaces, slices.Concat(rights.Needed, rights.Notified)...)
		t.Cleanup(func() {
			if refused := servers.RefusedToUsers(t, node); refused != "" {
				t.Errorf("the server has refused %s", refused)
			}
		})
	}
	drivertest.Run(t, drivertest.Service{New: func(tb testing.TB) driver.Driver {
		return openQuorum(tb, quorum.Addrs(), redis.Options{Username: "locker", Password: servers.UserPassword})
	}})
}
