package redislock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// namespaces are those of package drivertest.
var namespaces = []string{"drivertest", "a", strings.Repeat("n", 128), strings.Repeat("[0-9a-f]", 32), strings.Repeat("[0-9a-f]", 32) + "x"}

// The rights in doc.go are enough for the whole contract of a driver.
func TestConformance_documentedRights(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	rights := servers.DocumentedRights(t, "doc.go")
	servers.SetUser(t, server, "locker", namespaces, slices.Concat(rights.Needed, rights.Notified, rights.Lists)...)
	t.Cleanup(func() {
		if refused := servers.RefusedToUsers(t, server); refused != "" {
			t.Errorf("the server has refused %s", refused)
		}
	})
	drivertest.Run(t, drivertest.Service{
		New: drivers(redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "locker", Password: servers.UserPassword}),
	})
}
