package doctest

import (
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/testservers"
)

// The user that the guide sets up can do everything that a Locker does.
func TestGuide_rightsSuffice(t *testing.T) {
	server := testservers.StartRedis(t)
	grant(t, server, "### The lock service is unavailable")
	useRights(t, "redis://agent:password@"+server.Addr())
	if refused, err := server.Do("ACL", "LOG"); refused != "" || err != nil {
		t.Errorf("the server has refused %s, %v", refused, err)
	}
}

func TestGuide_rightsSufficeOnACluster(t *testing.T) {
	c := testservers.StartCluster(t)
	for _, node := range c.Nodes() {
		grant(t, node, "### The lock service is unavailable")
		grant(t, node, "### Keys, slots and rights")
	}
	useRights(t, strings.Replace(c.URL(), "://", "://agent:password@", 1))
	for _, node := range c.Nodes() {
		if refused, err := node.Do("ACL", "LOG"); refused != "" || err != nil {
			t.Errorf("a node has refused %s, %v", refused, err)
		}
	}
}

// grant sends a server the command that stands below a heading of the guide.
func grant(t *testing.T, server *testservers.Redis, heading string) {
	t.Helper()
	command := strings.Fields(readPage(t, "docs/guide.md").section(t, heading, "redis")[0].text)
	if _, err := server.Do(command...); err != nil {
		t.Fatal(err)
	}
}

func useRights(t *testing.T, url string) {
	t.Helper()
	locker := open(t, url, nil)
	for range 2 { // the second time, the counter of the first is there
		lease := acquire(t, locker)
		if _, err := locker.TryAcquire(t.Context(), "session"); err == nil {
			t.Error("two leases")
		}
		if info, err := locker.Inspect(t.Context(), "session"); err != nil || !info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		for _, ttl := range []time.Duration{time.Second, time.Minute} { // shorter, longer
			if err := lease.Extend(t.Context(), ttl); err != nil {
				t.Error(err)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
