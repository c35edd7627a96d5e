package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// Two instances take turns, with one Save, several, none, and with Saves outside of turns in between.
func savesStandInOrder(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.turn(func(ctx context.Context) { a.mustSave(ctx, 1, 2, 3) })
	b.turn(func(ctx context.Context) { b.mustSave(ctx, 4, 5, 6) })
	a.mustSave(h.Context(), 7)
	b.mustSave(h.Context(), 8)
	a.turn(func(ctx context.Context) {
		if messages, err := a.memory.Load(ctx, ""); err != nil || len(messages) != 16 {
			h.Errorf("Load within a turn: %d messages, %v", len(messages), err)
		}
		a.mustSave(ctx, 9)
	})
	b.turn(func(ctx context.Context) {
		if _, err := b.memory.Load(ctx, ""); err != nil {
			h.Errorf("Load: %v", err)
		}
	})
	b.mustSave(h.Context(), 10, 11)
	a.turn(func(ctx context.Context) { a.mustSave(ctx, 12) })
	a.has(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	b.has(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
}

// Goroutines of three instances save at once, in turns and outside. Each pair is whole, none is lost or
// doubled, and the pairs of each goroutine keep their order.
func pairsStayWhole(h *harness) {
	const writers, rounds = 6, 15
	var all sync.WaitGroup
	instances := []*instance{h.instance(nil, nil), h.instance(nil, nil), h.instance(nil, nil)}
	for w := range writers {
		i := instances[w%len(instances)]
		all.Go(func() {
			for n := range rounds {
				name := fmt.Sprintf("%d.%02d", w, n)
				var err error
				if n%3 == 0 {
					err = i.memory.Turn(h.Context(), func(ctx context.Context) error { return i.save(ctx, name) })
				} else {
					err = i.save(h.Context(), name)
				}
				if err != nil {
					h.Errorf("Save of %s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
	messages, err := instances[0].store.Load(h.Context(), "")
	if err != nil || len(messages) != 2*writers*rounds {
		h.Fatalf("%d messages, %v; want %d", len(messages), err, 2*writers*rounds)
	}
	last := make(map[byte]string)
	for pair := range slices.Chunk(messages, 2) {
		name := pair[0].Text[1:]
		if pair[0] != question(name) || pair[1] != answer(name) {
			h.Fatalf("torn: %v", pair)
		}
		if last[name[0]] >= name {
			h.Errorf("%s stands after %s", name, last[name[0]])
		}
		last[name[0]] = name
	}
}

// A Save outside of a turn waits for the turn under way, of its own process and of another one.
func saveOutsideWaits(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	saved := make(chan error, 2)
	a.turn(func(ctx context.Context) {
		for _, i := range []*instance{a, b} {
			go func() { saved <- i.save(h.Context(), "outside") }()
		}
		select {
		case err := <-saved:
			h.Errorf("a Save outside ended within the turn: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		a.mustSave(ctx, "inside")
	})
	for range 2 {
		if err := <-saved; err != nil {
			h.Errorf("Save: %v", err)
		}
	}
	a.has("inside", "outside", "outside")
}

// Of two Saves under one lease, the first arrives after the second was stored. The driver refuses it.
func lateSaveOfTheSameLease(h *harness) {
	a := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		append := func(n int64, name string) driver.Verdict {
			v, err := a.driver.Append(ctx, driver.Append{Write: a.write(lease, n), Content: content(name)})
			if err != nil {
				h.Fatal(err)
			}
			return v
		}
		if v := append(2, "second"); v.Outcome != driver.Done {
			h.Errorf("the second: %+v", v)
		}
		if v := append(1, "first"); v.Outcome != driver.Taken || v.Mark != (driver.Place{Fence: lease.Fence(), N: 2}) {
			h.Errorf("the first, late: %+v", v)
		}
		a.has("second")
		if v, err := a.driver.Clear(ctx, a.write(lease, 3)); err != nil || v.Outcome != driver.Done {
			h.Errorf("Clear: %+v, %v", v, err)
		}
		if v := append(2, "second"); v.Outcome != driver.Taken {
			h.Errorf("one from before the Clear, late: %+v", v)
		}
	})
	a.has()
}

// write is one of its own under a lease, as the first access.
func (i *instance) write(lease *distlock.Lease, n int64) driver.Write {
	return driver.Write{Access: driver.Access{Session: i.session, Lease: lease, Fence: lease.Fence(), First: true},
		N: n, Op: newOp()}
}

func content(name string) driver.Content {
	input, _ := codec.Encode(question(name))
	output, _ := codec.Encode(answer(name))
	return driver.Content{Messages: [][]byte{input, output}}
}

// A holder from before the lease of a Clear cannot write after the Clear, in whatever way it has used
// the store. Later exchanges stay.
func clearIsNotUndone(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 1)
	used, fence := a.stale(func(ctx context.Context) { a.mustSave(ctx, 2) })
	unused, fence2 := a.stale(nil)
	if err := b.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	b.has()
	a.refused("Save", a.store.Save(used, question("late"), answer("late")), fence, fence+1)
	a.refused("Save", a.store.Save(unused, question("late"), answer("late")), fence2, fence2+1)
	a.refused("Clear", a.store.Clear(unused), fence2, fence2+1)
	a.has()
	b.mustSave(h.Context(), 3)
	a.mustSave(h.Context(), 4)
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	a.refused("Save", a.store.Save(used, question("late"), answer("late")), fence, fence2+1)
	a.mustSave(h.Context(), 5)
	b.has(5)
}

func clearWithinATurn(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	b.mustSave(h.Context(), 0)
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 1)
		if err := a.memory.Clear(ctx); err != nil {
			h.Error(err)
		}
		a.has()
		a.mustSave(ctx, 2, 3)
		if err := a.memory.Clear(ctx); err != nil {
			h.Error(err)
		}
		a.mustSave(ctx, 4)
	})
	b.turn(func(ctx context.Context) { b.mustSave(ctx, 5) })
	b.has(4, 5)
}

// Two stores write under one lease, as when each has an object of its own for the session.
func storesShareLease(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	late, _ := a.stale(func(ctx context.Context) {
		for n := range 20 {
			i := []*instance{a, b, a}[n/8]
			if err := i.store.Save(ctx, question(n), answer(n)); err != nil {
				h.Errorf("Save %d: %v", n, err)
			}
		}
		if err := b.store.Clear(ctx); err != nil {
			h.Error(err)
		}
		if err := a.store.Save(ctx, question(7), answer(7)); err != nil {
			h.Error(err)
		}
	})
	a.has(7)
	// No other lease was there, and the ended one has left no count of its places.
	if err := a.store.Save(late, question(8), answer(8)); err != nil {
		h.Error(err)
	}
	a.has(7, 8)
}

// After an access of any kind has shown a token, the store refuses accesses of all kinds under lower
// tokens.
func refusesOlderLeases(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	want := []any{0}
	a.mustSave(h.Context(), 0)
	for name, show := range map[string]func(ctx context.Context) error{
		"Load":   func(ctx context.Context) error { _, err := b.memory.Load(ctx, ""); return err },
		"Search": func(ctx context.Context) error { _, err := b.memory.Search(ctx, "q", 1); return err },
		"Exchanges": func(ctx context.Context) error {
			for _, err := range b.store.Exchanges(ctx) {
				return err
			}
			return errors.New("no exchanges")
		},
		"Save": func(ctx context.Context) error {
			want = append(want, "new")
			return b.save(ctx, "new")
		},
		"Save of a turn that is known": func(ctx context.Context) error {
			return b.save(lockedmemory.WithTurnID(ctx, "known"), "known")
		},
	} {
		if name == "Save of a turn that is known" {
			want = append(want, "known")
			a.mustSave(lockedmemory.WithTurnID(h.Context(), "known"), "known")
		}
		used, fence := a.stale(func(ctx context.Context) {
			want = append(want, name)
			a.mustSave(ctx, name)
		})
		unused, fence2 := a.stale(nil)
		var mark int64
		b.turn(func(ctx context.Context) {
			if err := show(ctx); err != nil {
				h.Errorf("%s by the new holder: %v", name, err)
			}
			lease, _ := lockedmemory.Lease(ctx)
			mark = lease.Fence()
			a.refused("Save after "+name, a.store.Save(used, question("stale"), answer("stale")), fence, mark)
			a.refused("first Save after "+name, a.store.Save(unused, question("stale"), answer("stale")), fence2, mark)
			a.refused("Save with a turn ID after "+name,
				a.store.Save(lockedmemory.WithTurnID(unused, "stale"), question("stale"), answer("stale")), fence2, mark)
			a.refused("Clear after "+name, a.store.Clear(used), fence, mark)
			_, err := a.store.Load(unused, "")
			a.refused("Load after "+name, err, fence2, mark)
		})
	}
	a.has(want...)
}

// The highest token outlives an expired session.
func refusesAfterExpiry(h *harness) {
	opts := &options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}
	a, b := h.instance(opts, nil), h.instance(opts, nil)
	used, fence := a.stale(func(ctx context.Context) { a.mustSave(ctx, 1) })
	unused, fence2 := a.stale(nil)
	b.turn(func(ctx context.Context) { b.mustSave(ctx, 2) })
	a.awaitEmpty()
	a.refused("Save", a.store.Save(used, question("stale"), answer("stale")), fence, 0)
	a.refused("first Save", a.store.Save(unused, question("stale"), answer("stale")), fence2, 0)
	a.refused("Clear", a.store.Clear(used), fence, 0)
	a.has()
	b.turn(func(ctx context.Context) {
		a.refused("Save while another has the lock", a.store.Save(used, question("stale"), answer("stale")), fence, 0)
		b.mustSave(ctx, 3)
	})
	a.has(3)
}

// The store also refuses a holder whose lock was handed off within the process, under tokens of one
// grant.
func refusesAfterExpiryWithinATurn(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}, nil)
	var (
		first, second context.Context
		fence         int64
		all           sync.WaitGroup
		begun         = make(chan bool)
	)
	all.Go(func() {
		a.turn(func(ctx context.Context) {
			lease, _ := lockedmemory.Lease(ctx)
			first, fence = context.WithoutCancel(ctx), lease.Fence()
			close(begun)
			time.Sleep(3 * time.Millisecond) // so that the next one waits here, and is handed the lock
		})
	})
	<-begun
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		second = ctx
		a.mustSave(ctx, 1)
		a.awaitEmpty()
		a.refused("Save of the turn before", a.store.Save(first, question("stale"), answer("stale")), fence, lease.Fence())
		a.isGone("Save", a.save(second, 2))
	})
	all.Wait()
	a.has()
}

// isGone checks that a Save was refused because the loaded history has disappeared.
func (i *instance) isGone(what string, err error) {
	i.Helper()
	if !errors.Is(err, sessionstore.ErrGone) || errors.Is(err, distlock.ErrLost) {
		i.Errorf("%s: %v; want ErrGone", what, err)
	}
}

// The session expires under a turn that has read or stored an exchange. A later Save would leave the
// end of a turn without its beginning, so the store refuses it, until a Clear.
func goneAfter(begin func(ctx context.Context, a, b *instance)) func(*harness) {
	return func(h *harness) {
		opts := &options{Retention: sessionstore.Retention{IdleTTL: time.Second}}
		a, b := h.instance(opts, nil), h.instance(opts, nil)
		a.mustSave(h.Context(), 0)
		a.turn(func(ctx context.Context) {
			begin(ctx, a, b)
			a.awaitEmpty()
			a.isGone("Save", a.save(ctx, 2))
			a.isGone("Save with a turn ID", a.save(lockedmemory.WithTurnID(ctx, "id"), 2))
			a.has()
			if err := a.memory.Clear(ctx); err != nil {
				h.Errorf("Clear: %v", err)
			}
			a.mustSave(ctx, 3, 4)
			a.has(3, 4)
		})
		a.awaitEmpty()
		a.turn(func(ctx context.Context) {
			a.mustLoad(ctx) // an empty history
			a.mustSave(ctx, 5)
		})
		a.has(5)
	}
}

// raise gives the lease of a turn a higher token, and shows it after the session has expired.
func (i *instance) raise(ctx context.Context) {
	i.Helper()
	i.awaitEmpty()
	lease, _ := lockedmemory.Lease(ctx)
	if err := fencing.RaiseToken(ctx, lease, lease.Fence()+10); err != nil {
		i.Error(err)
	}
	i.mustLoad(ctx)
}

func (i *instance) mustLoad(ctx context.Context) {
	i.Helper()
	if _, err := i.memory.Load(ctx, ""); err != nil {
		i.Fatalf("Load: %v", err)
	}
}

var (
	goneAfterSave      = goneAfter(func(ctx context.Context, a, _ *instance) { a.mustSave(ctx, 1) })
	goneAfterLoad      = goneAfter(func(ctx context.Context, a, _ *instance) { a.mustLoad(ctx) })
	goneAfterEmptyLoad = goneAfter(func(ctx context.Context, a, b *instance) {
		a.mustSave(ctx, 1)
		a.awaitEmpty()
		a.mustLoad(ctx)
		if _, err := b.store.Load(ctx, ""); err != nil {
			a.Error(err)
		}
	})
	goneAfterSaveAndRaise = goneAfter(func(ctx context.Context, a, _ *instance) {
		if err := a.memory.Clear(ctx); err != nil { // so that only the Save counts
			a.Error(err)
		}
		a.mustSave(ctx, 1)
		a.raise(ctx)
	})
	goneAfterLoadAndRaise = goneAfter(func(ctx context.Context, a, _ *instance) {
		a.mustLoad(ctx)
		a.raise(ctx)
	})
	goneAfterOtherStore = goneAfter(func(ctx context.Context, a, b *instance) {
		if err := b.store.Save(ctx, question(1), answer(1)); err != nil {
			a.Error(err)
		}
	})
)

// Late copies of calls under a lease do not restore a cleared history, and do not hide that the session
// is gone.
func lateCopies(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: time.Second}}, nil)
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		write := func(n int64, need driver.Place) driver.Write {
			w := a.write(lease, n)
			w.First, w.Need = n == 1, need
			return w
		}
		at := func(n int64) driver.Place { return driver.Place{Fence: lease.Fence(), N: n} }
		check := func(what string, v driver.Verdict, err error, want ...driver.Outcome) {
			h.Helper()
			if err != nil || !slices.Contains(want, v.Outcome) {
				h.Errorf("%s: %+v, %v; want outcome %v", what, v, err, want)
			}
		}
		show := func(need driver.Place) {
			h.Helper()
			access := write(1, need).Access
			page, err := a.driver.Read(ctx, driver.Read{Session: h.session, Access: &access, Limit: 1})
			check("a late Load", page.Verdict, err, driver.Done)
		}
		first := driver.Append{Write: write(1, driver.Place{}), Content: content("first")}
		v, err := a.driver.Append(ctx, first)
		check("Save", v, err, driver.Done)
		clear := write(2, at(1))
		v, err = a.driver.Clear(ctx, clear)
		check("Clear", v, err, driver.Done)
		show(driver.Place{})
		v, err = a.driver.Append(ctx, first)
		check("a late Save, after Clear", v, err, driver.Taken)
		v, err = a.driver.Clear(ctx, clear)
		check("a late Clear", v, err, driver.Done)
		v, err = a.driver.Append(ctx, driver.Append{Write: write(3, at(1)), Content: content("third")})
		check("Save after Clear", v, err, driver.Done)
		a.has("third")
		a.awaitEmpty()
		v, err = a.driver.Clear(ctx, clear)
		check("a late Clear, after a Save that has expired", v, err, driver.Done, driver.Taken)
		show(at(3))
		v, err = a.driver.Append(ctx, driver.Append{Write: write(4, at(3)), Content: content("fourth")})
		check("Save after expiry", v, err, driver.Gone)
		a.has()
	})
}

// Two stores write under one lease. Late Saves of one do not stand above the Clear of the other.
func lateSavesOfTheOtherStore(h *harness) {
	d := &delayed{}
	a := h.instance(nil, func(inner driver.Driver) driver.Driver {
		d.Driver = inner
		return d
	})
	b := h.instance(nil, nil)
	a.turn(func(ctx context.Context) {
		for n := range 3 {
			if err := a.save(ctx, n); !errors.Is(err, distlock.ErrOutcomeUnknown) {
				h.Errorf("Save %d: %v", n, err)
			}
		}
		if err := b.store.Clear(ctx); err != nil {
			h.Error(err)
		}
		for _, each := range d.appends {
			if v, err := b.driver.Append(ctx, each); err != nil || v.Outcome != driver.Taken {
				h.Errorf("a late Save: %+v, %v", v, err)
			}
		}
		if err := b.store.Save(ctx, question(4), answer(4)); err != nil {
			h.Error(err)
		}
	})
	a.has(4)
}

// delayed is a driver whose Appends are under way for long.
type delayed struct {
	driver.Driver
	appends []driver.Append
}

func (d *delayed) Append(_ context.Context, a driver.Append) (driver.Verdict, error) {
	d.appends = append(d.appends, a)
	return driver.Verdict{}, errors.New("no answer")
}

// awaitEmpty waits until the session has expired.
func (i *instance) awaitEmpty() {
	i.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		messages, err := i.store.Load(i.Context(), "")
		if err != nil || time.Now().After(deadline) {
			i.Fatalf("the session does not expire: %d messages, %v", len(messages), err)
		}
		if len(messages) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The store has seen a higher token than the lock grants now, as after a data loss of the lock service.
// The holder gets a higher token, and goes on.
func lowToken(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	ahead := a.ahead("ahead")
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 1)
		if lease, _ := lockedmemory.Lease(ctx); lease.Fence() <= ahead {
			h.Errorf("the lease has token %d, the store has seen %d", lease.Fence(), ahead)
		}
	})
	b.turn(func(ctx context.Context) {
		if messages, err := b.memory.Load(ctx, ""); err != nil || !slices.Contains(messages, question(1)) {
			h.Errorf("Load: %s, %v", text(messages), err)
		}
		b.mustSave(ctx, 2)
	})
	b.mustSave(h.Context(), 3)
	messages, err := a.store.Load(h.Context(), "q")
	if n := len(messages); err != nil || n < 8 || messages[n-2] != question(3) || messages[n-8] != question("ahead") {
		h.Errorf("%s, %v", text(messages), err)
	}
}

// ahead writes under a token of a lock service whose clock was an hour ahead, and returns the token.
func (i *instance) ahead(n string) (fence int64) {
	i.Helper()
	i.turn(func(ctx context.Context) {
		i.mustSave(ctx, 0) // only the lock's owner may write to an empty session
		lease, _ := lockedmemory.Lease(ctx)
		w := i.write(lease, 1)
		w.Fence = lease.Fence() + 3_600_000_000
		fence = w.Fence
		if v, err := i.driver.Append(ctx, driver.Append{Write: w, Content: content(n)}); err != nil ||
			v.Outcome != driver.Done {
			i.Fatalf("%+v, %v", v, err)
		}
	})
	return fence
}

// Between a holder's Load and Save, another holder with a higher token has written, as when two lock
// services grant the lock around a failover. The loaded history is outdated, so the store refuses the
// Save even if the holder still owns the lock.
func overtakenHolder(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 0)
	for _, raised := range []bool{false, true} {
		a.turn(func(ctx context.Context) {
			a.mustLoad(ctx)
			lease, _ := lockedmemory.Lease(ctx)
			if raised { // after the Load, so the store has accepted a lower one
				if err := fencing.RaiseToken(ctx, lease, lease.Fence()+10); err != nil {
					h.Fatal(err)
				}
			}
			fence := lease.Fence()
			w := b.write(lease, 1)
			w.Fence += 1000
			if v, err := b.driver.Append(ctx, driver.Append{Write: w, Content: content("other")}); err != nil ||
				v.Outcome != driver.Done {
				h.Fatalf("%+v, %v", v, err)
			}
			a.refused("Save", a.save(ctx, "unaware"), fence, w.Fence)
			a.refused("Save with a turn ID", a.save(lockedmemory.WithTurnID(ctx, "unaware"), "unaware"), fence, w.Fence)
			a.refused("Clear", a.memory.Clear(ctx), fence, w.Fence)
		})
	}
	a.mustSave(h.Context(), 1)
	a.has(0, "other", "other", 1)
}
