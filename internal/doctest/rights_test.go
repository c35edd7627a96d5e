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
	command := strings.Fields(readPage(t, "docs/guide.md").section(t, "### The lock service is unavailable", "redis")[0].text)
	if _, err := server.Do(command...); err != nil {
		t.Fatal(err)
	}
	locker := open(t, "redis://agent:password@"+server.Addr(), nil)
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
