package sessionstore

import (
	"context"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/memlock"
)

// What a store knows of a lease is nothing from the moment it ends, and not only when it has been forgotten: a Load that comes late shows
// its token again, and may be refused.
func TestTenures_S2_knowNothingOfALeaseThatHasEnded(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	lease, err := locker.Acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	var ts tenures
	before := ts.of(lease)
	if before.shown(lease.Fence()); ts.of(lease) != before {
		t.Error("a lease that is held has another tenure each time")
	}
	ts.mu.Lock() // so nothing is forgotten
	defer ts.mu.Unlock()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := make(chan *tenure, 1)
	go func() { after <- ts.of(lease) }()
	select {
	case got := <-after:
		if got == before || got.known {
			t.Error("the lease has ended, and its token counts as shown")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the lease to be forgotten")
	}
}
