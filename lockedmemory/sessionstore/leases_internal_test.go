package sessionstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock/memlock"
)

// A lease that has ended has shown nothing, also if its state is still there: a late Load shows its
// token again, and may be refused.
func TestLeases_S2_endedLease_nothingShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, err := memlock.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		lease, err := locker.Acquire(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		var ls leases
		before := ls.of(lease)
		if before.accept(lease.Fence(), nil); ls.of(lease) != before {
			t.Error("a lease that is held has another state each time")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, kept := ls.byLease.Load(lease); kept {
			t.Error("the state of an ended lease is kept")
		}
		ls.byLease.Store(lease, before) // as long as it is not removed yet
		if after := ls.of(lease); after == before || after.shown != 0 {
			t.Error("the lease has ended, and its token counts as shown")
		}
	})
}
