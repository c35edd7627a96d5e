package storetest

import (
	"errors"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// A Save outside a turn frees the lock before it returns. A driver may release the lock with the
// last write of a lease, if the write takes effect. Then the lease has ended, too.
func lastWrites(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	isFree := func() bool {
		lease, err := b.locker.TryAcquire(h.Context(), h.session)
		if err == nil {
			err = lease.Release(h.Context())
			return err == nil
		}
		if !errors.Is(err, distlock.ErrNotAcquired) {
			h.Errorf("TryAcquire: %v", err)
		}
		return false
	}
	a.mustSave(h.Context(), 0)
	if !isFree() {
		h.Error("after a Save outside a turn the lock is held")
	}
	for _, c := range []struct {
		name  string
		token int64 // above that of the lease
		want  storedriver.Outcome
	}{{"refused", -1_000_000_000, storedriver.Stale}, {"stored", 0, storedriver.Done}} {
		lease, err := a.locker.Acquire(h.Context(), h.session)
		if err != nil {
			h.Fatal(err)
		}
		w := a.write(lease, 1)
		w.Fence += c.token
		v, err := a.driver.Append(lastwrite.With(h.Context(), lease, nil), storedriver.Append{Write: w, Content: content(c.name)})
		if err != nil || v.Outcome != c.want {
			h.Errorf("%s: %+v, %v", c.name, v, err)
		}
		held, free := lease.Err() == nil, isFree()
		if held == free || c.want != storedriver.Done && free {
			h.Errorf("%s: the lease is held: %t, and the lock is free: %t", c.name, held, free)
		}
		if err := lease.Release(h.Context()); err != nil || !isFree() {
			h.Errorf("%s: Release: %v", c.name, err)
		}
	}
	a.has(0, "stored")
	a.ahead("ahead")
	a.mustSave(h.Context(), 1) // refused at first
	if !isFree() {
		h.Error("after a Save that was refused at first the lock is held")
	}
}
