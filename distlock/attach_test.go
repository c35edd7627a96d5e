package distlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// A lease has one attachment for each key, also for callers that come at once and after its end.
func TestAttach_onePerKeyAndLease(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	type key string
	var made atomic.Int32
	attach := func(of key) func() any {
		lease, err := locker.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		get := func() any { return fencing.Attach(lease, of, func() any { return made.Add(1) }) }
		var all sync.WaitGroup
		first := get()
		for range 8 {
			all.Go(func() {
				if got := get(); got != first {
					t.Errorf("%v, and then %v", first, got)
				}
			})
		}
		all.Wait()
		if other := fencing.Attach(lease, of+"2", func() any { return made.Add(1) }); other == first {
			t.Error("two keys share an attachment")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return get
	}
	before := attach("a")
	if first, second := before(), attach("a")(); first != int32(1) || second == first {
		t.Errorf("%v for a lease that has ended, %v for the next one", first, second)
	}
}
