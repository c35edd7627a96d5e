package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Turns whose wait began before a Delete are refused, whatever they do, and until they end. A turn whose wait
// began after the Delete begins the session anew, also if it waits for the turn of the Delete.
func waitedForDelete(h *harness) {
	a, b, c := h.instance(nil, nil), h.instance(nil, nil), h.instance(nil, nil)
	a.mustSaveOnce(h.Context(), "id", 0)
	var before, after waiting
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 1)
		before.begin(b, func(ctx context.Context) {
			b.isDeleted(ctx)
			b.isDeleted(ctx)
		})
		a.awaitQueue(1)
		if err := a.memory.Delete(ctx); err != nil {
			h.Fatal(err)
		}
		after.begin(c, func(ctx context.Context) {
			c.mustLoad(ctx)
			c.mustSave(ctx, "after")
		})
		a.mustSave(ctx, "new")
	})
	before.Wait()
	after.Wait()
	a.has("new", "after")
	b.isUnknown("id")
	b.mustSave(h.Context(), 2)
	a.has("new", "after", 2)
}

// A later turn, and a Clear, do not hide a Delete from a turn that waits for longer.
func waitedForDeleteAndLonger(h *harness) {
	a, b, c := h.instance(nil, nil), h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 0)
	var early waiting
	lease := func(ctx context.Context) *distlock.Lease {
		lease, _ := lockedmemory.Lease(ctx)
		return lease
	}
	var awaited int64
	a.turn(func(ctx context.Context) {
		early.begin(b, func(ctx context.Context) { awaited = fencing.Awaited(lease(ctx)) })
		a.awaitQueue(1)
	})
	early.Wait()
	for _, later := range []func(ctx context.Context){
		func(context.Context) {},
		func(ctx context.Context) { c.mustLoad(ctx) },
		func(ctx context.Context) { c.mustSave(ctx, 1) },
		func(ctx context.Context) {
			c.mustSave(ctx, 1)
			if err := c.memory.Clear(ctx); err != nil {
				h.Error(err)
			}
		},
	} {
		if err := a.memory.Delete(h.Context()); err != nil {
			h.Fatal(err)
		}
		c.turn(later)
		b.turn(func(ctx context.Context) {
			w := b.write(lease(ctx), 1)
			w.Awaited = awaited
			if v, err := b.driver.Append(ctx, storedriver.Append{Write: w, Content: content("early")}); err != nil ||
				v.Outcome != storedriver.Deleted {
				h.Errorf("a Save of a turn that began to wait before the Delete: %+v, %v", v, err)
			}
		})
	}
}

// A turn that has waited, and that was there before a Delete, is stale.
func olderWaiter(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	var waits waiting
	var old context.Context
	var fence int64
	a.turn(func(context.Context) {
		waits.begin(b, func(ctx context.Context) {
			lease, _ := lockedmemory.Lease(ctx)
			old, fence = context.WithoutCancel(ctx), lease.Fence()
			b.mustSave(ctx, 1)
		})
		a.awaitQueue(1)
	})
	waits.Wait()
	if err := a.memory.Delete(h.Context()); err != nil {
		h.Fatal(err)
	}
	b.refused("Save", b.store.Save(old, question("late"), answer("late")), fence, fence+1)
}

// Many turns wait in the process of a Delete, and one in another process. None of them begins the session
// anew, whether the process of the Delete hands the lock off or not.
func waitedInProcesses(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 0)
	var waiters waiting
	a.turn(func(ctx context.Context) {
		waiters.begin(b, b.isDeleted)
		for range 5 {
			waiters.begin(a, a.isDeleted)
		}
		a.awaitQueue(2)
		a.awaitWaiters(6)
		if err := a.memory.Delete(ctx); err != nil {
			h.Fatal(err)
		}
	})
	waiters.Wait()
	a.has()

	// The Delete has a turn of its own, shorter than the window of a local handoff.
	var deletes sync.WaitGroup
	a.turn(func(ctx context.Context) {
		deletes.Go(func() {
			if err := a.memory.Delete(context.WithoutCancel(h.Context())); err != nil {
				h.Error(err)
			}
		})
		a.awaitQueue(1)
		for range 5 {
			waiters.begin(a, a.isDeleted)
		}
		a.awaitWaiters(6)
	})
	deletes.Wait()
	waiters.Wait()
	a.mustSave(h.Context(), 1)
	a.has(1)
}

// A turn that has waited for a Delete may delete the session, and then it may use the session. A Delete of a
// turn refuses no call of that turn, through none of its stores.
func deletesTwice(h *harness) {
	a, b, other := h.instance(nil, nil), h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 0)
	var waits waiting
	a.turn(func(ctx context.Context) {
		waits.begin(b, func(ctx context.Context) {
			b.isDeleted(ctx)
			for n := range 2 {
				if err := b.memory.Delete(ctx); err != nil {
					h.Errorf("Delete %d: %v", n, err)
				}
				b.mustLoad(ctx)
				b.mustSave(ctx, 1)
				if err := other.store.Save(ctx, question(2), answer(2)); err != nil {
					h.Errorf("Save through another store: %v", err)
				}
			}
		})
		a.awaitQueue(1)
		if err := a.memory.Delete(ctx); err != nil {
			h.Fatal(err)
		}
	})
	waits.Wait()
	a.has(1, 2)
}

// A Delete of the same turn overtakes a Save. The Save comes after it.
func deleteOvertakesSave(h *harness) {
	d := &overtaken{}
	a := h.instance(nil, func(inner storedriver.Driver) storedriver.Driver {
		d.Driver = inner
		return d
	})
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 0)
		d.by = func() {
			if err := a.store.Delete(ctx); err != nil {
				h.Error(err)
			}
		}
		a.mustSave(ctx, 1)
	})
	a.has(1)
}

// overtaken is a driver whose next Append arrives after another call.
type overtaken struct {
	storedriver.Driver
	by func()
}

func (d *overtaken) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	if by := d.by; by != nil {
		d.by = nil
		by()
	}
	return d.Driver.Append(ctx, a)
}

// A later lease has written between the Load and the Delete of a turn, as when two lock services grant the
// lock around a failover. Delete raises the token of its lease, but not above that of the later lease.
func deleteOvertaken(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 0)
	first := a.all(h.Context())[0].Place
	a.turn(func(ctx context.Context) {
		a.mustLoad(ctx)
		lease, _ := lockedmemory.Lease(ctx)
		w := b.write(lease, 1)
		w.Fence++
		if v, err := b.driver.Append(ctx, storedriver.Append{Write: w, Content: content("other")}); err != nil ||
			v.Outcome != storedriver.Done {
			h.Fatalf("%+v, %v", v, err)
		}
		for what, call := range map[string]func() error{
			"Delete":   func() error { return a.memory.Delete(ctx) },
			"Save":     func() error { return a.save(ctx, "unaware") },
			"SaveOnce": func() error { return a.saveOnce(ctx, "id", "unaware") },
			"Replace":  func() error { return a.store.Replace(ctx, first, first, pin("unaware")) },
		} {
			err := a.memory.Delete(ctx)
			if err == nil {
				h.Fatal("Delete: no error")
			}
			a.refused(what, call(), lease.Fence(), w.Fence)
		}
	})
	a.has(0, "other")
}

// A Delete whose answer is lost, or that is refused, is repeated in its turn, and the turn goes on. A turn
// that began to wait between the two is refused.
func deleteRepeated(h *harness) {
	d := &lost{}
	a := h.instance(nil, func(inner storedriver.Driver) storedriver.Driver {
		d.Driver = inner
		return d
	})
	b := h.instance(nil, nil)
	for _, c := range []struct {
		untaken bool
		refusal storedriver.Outcome
	}{{}, {untaken: true}, {true, storedriver.Full}} {
		a.mustSave(h.Context(), "old")
		var waits waiting
		a.turn(func(ctx context.Context) {
			a.mustLoad(ctx)
			d.next, d.untaken, d.refusal = true, c.untaken, c.refusal
			want := distlock.ErrOutcomeUnknown
			if c.refusal != storedriver.Done {
				want = sessionstore.ErrFull
			}
			if err := a.memory.Delete(ctx); !errors.Is(err, want) {
				h.Errorf("%+v: Delete: %v", c, err)
			}
			waits.begin(b, b.isDeleted)
			a.awaitQueue(1)
			if err := a.memory.Delete(ctx); err != nil {
				h.Errorf("%+v: Delete again: %v", c, err)
			}
			a.mustSave(ctx, "new")
		})
		waits.Wait()
		a.has("new")
		if err := a.memory.Clear(h.Context()); err != nil {
			h.Error(err)
		}
	}
}

// The lock of another session is ahead, so a Fork of that session raises the token of its lease. That Fork
// does not hide a Delete from turns that wait: neither its own turn, nor those that wait for a later Delete.
func deletedAroundFork(h *harness) {
	a, b, ahead := h.instance(nil, nil), h.instance(nil, nil), h.of(h.session+"-ahead", nil, nil)
	raised := func() {
		ahead.turn(func(ctx context.Context) {
			lease, _ := lockedmemory.Lease(ctx)
			if err := fencing.RaiseToken(ctx, lease, lease.Fence()+3_600_000_000); err != nil {
				h.Fatal(err)
			}
			ahead.mustSave(ctx, 1)
		})
	}
	fork := func(ctx context.Context, want error) {
		h.Helper()
		if err := ahead.store.Fork(ctx, h.session, lockedmemory.Place{}); !errors.Is(err, want) {
			h.Errorf("Fork: %v, want %v", err, want)
		}
	}
	raised()
	a.mustSave(h.Context(), 0)
	var waits waiting
	a.turn(func(ctx context.Context) {
		waits.begin(b, func(ctx context.Context) { fork(ctx, sessionstore.ErrDeleted) })
		a.awaitQueue(1)
		if err := a.memory.Delete(ctx); err != nil {
			h.Fatal(err)
		}
	})
	waits.Wait()
	a.has()

	raised()
	a.mustSave(h.Context(), 0)
	a.turn(func(ctx context.Context) {
		a.mustLoad(ctx)
		fork(ctx, sessionstore.ErrNotEmpty)
		raised()
		fork(ctx, sessionstore.ErrNotEmpty) // no lease has overtaken this one
		waits.begin(b, b.isDeleted)
		a.awaitQueue(1)
		if err := a.memory.Delete(ctx); err != nil {
			h.Errorf("Delete: %v", err)
		}
	})
	waits.Wait()
	a.has()
}

// A session of which nothing is known does not admit a token older than 23 hours: the mark of a later lease
// may have expired. The lock gives its present owner a new token.
func oldToken(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		write := func(n int64) storedriver.Write {
			w := a.write(lease, n)
			w.Fence -= int64(24 * time.Hour / time.Microsecond)
			return w
		}
		access := write(1).Access
		page, err := a.driver.Read(ctx, storedriver.Read{Access: access, Limit: 1})
		saved, err2 := a.driver.Append(ctx, storedriver.Append{Write: write(1), Content: content("old")})
		cleared, err3 := a.driver.Clear(ctx, storedriver.Clear{Write: write(2)})
		for what, v := range map[string]storedriver.Verdict{"Load": page.Verdict, "Save": saved, "Clear": cleared} {
			if err := errors.Join(err, err2, err3); err != nil || v.Outcome != storedriver.Unowned {
				h.Errorf("%s: %+v, %v; want Unowned", what, v, err)
			}
		}
		a.mustSave(ctx, 1)
		v, err := a.driver.Append(ctx, storedriver.Append{Write: write(3), Content: content("old")})
		if err != nil || v.Outcome != storedriver.Stale {
			h.Errorf("Save in a session that is there: %+v, %v; want Stale", v, err)
		}
	})
	a.has(1)
}

// isDeleted checks that all calls in a turn fail because the session was deleted while the turn waited.
func (i *instance) isDeleted(ctx context.Context) {
	i.Helper()
	_, loads := i.memory.Load(ctx, "")
	_, searches := i.memory.Search(ctx, "q", 1)
	for what, err := range map[string]error{
		"Load": loads, "Search": searches,
		"Save":     i.save(ctx, "waited"),
		"SaveOnce": i.saveOnce(ctx, "waited", "waited"),
		"Replace":  i.store.Replace(ctx, lockedmemory.Place{Fence: 1, N: 1}, lockedmemory.Place{Fence: 1, N: 1}),
		"Clear":    i.memory.Clear(ctx),
	} {
		if !errors.Is(err, sessionstore.ErrDeleted) || errors.Is(err, distlock.ErrLost) {
			i.Errorf("%s: %v; want ErrDeleted", what, err)
		}
	}
}

// waiting is a turn that waits for another one.
type waiting struct{ sync.WaitGroup }

// begin begins a turn in an instance, and returns when it waits. It may return sooner if an earlier
// turn enters the queue of the lock, which does not count that turn for a moment.
func (w *waiting) begin(i *instance, fn func(ctx context.Context)) {
	i.Helper()
	before := i.waiters()
	w.Go(func() { i.turn(fn) })
	i.awaitWaiters(before + 1)
}

func (i *instance) awaitWaiters(n int) {
	i.Helper()
	await(i, "in the process", n, i.waiters)
}

// awaitQueue waits until so many waiters have asked the lock service.
func (i *instance) awaitQueue(n int) {
	i.Helper()
	await(i, "in the queue of the lock", n, func() int {
		info, err := i.locker.Inspect(i.Context(), i.session)
		if err != nil {
			i.Fatal(err)
		}
		return info.Waiters
	})
}

func await(i *instance, where string, want int, count func() int) {
	i.Helper()
	for deadline := time.Now().Add(10 * time.Second); count() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			i.Fatalf("%d waiters %s, want %d", count(), where, want)
		}
	}
}

// waiters counts those in the queue of the lock, and those of this process.
func (i *instance) waiters() int {
	i.Helper()
	_, err := i.locker.TryAcquire(i.Context(), i.session)
	var busy *distlock.BusyError
	if !errors.As(err, &busy) {
		i.Fatalf("the lock is not held: %v", err)
	}
	return busy.Waiters
}
