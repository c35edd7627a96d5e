package sessionstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock/memlock"
)

// A lease that has ended has shown nothing: a late Load shows its token again, and may be refused.
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
		store := new(Store[string, string])
		before := stateOf(store, lease)
		if before.accept(lease.Fence(), nil); stateOf(store, lease) != before {
			t.Error("a lease that is held has another state each time")
		}
		if other := stateOf(new(Store[string, string]), lease); other == before || other.places != before.places {
			t.Error("two stores share the state of a lease, or do not share the places")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := stateOf(store, lease); after == before || after.acceptedFence != 0 {
			t.Error("the lease has ended, and its token counts as shown")
		}
	})
}
