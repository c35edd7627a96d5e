package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

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
	for tries, handed := 0, false; !handed; tries++ { // the process hands off for a short time only
		if tries == 100 {
			h.Fatal("no lock was handed off within the process")
		}
		var next waiting
		a.turn(func(ctx context.Context) {
			first, _ := lockedmemory.Lease(ctx)
			stale := context.WithoutCancel(ctx)
			before := a.waiters()
			next.Go(func() { // no Turn: one that came after the grant takes no handoff
				err := a.locker.Do(h.Context(), h.session, func(ctx context.Context) error {
					second, _ := a.locker.FromContext(ctx, h.session)
					if handed = second.Fence() == first.Fence()+1; !handed {
						return nil
					}
					a.mustSave(ctx, 1)
					a.awaitEmpty()
					err := a.store.Save(stale, question("stale"), answer("stale"))
					a.refused("Save of the turn before", err, first.Fence(), second.Fence())
					a.isGone("Save", a.save(ctx, 2))
					return nil
				})
				if err != nil {
					h.Errorf("Do: %v", err)
				}
			})
			a.awaitWaiters(before + 1)
		})
		next.Wait()
	}
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
// end of a turn without its beginning, so the store refuses it, and a Replace, until a Clear.
func goneAfter(begin func(ctx context.Context, a, b *instance)) func(*harness) {
	return func(h *harness) {
		opts := &options{Retention: sessionstore.Retention{IdleTTL: 3 * time.Second}}
		a, b := h.instance(opts, nil), h.instance(opts, nil)
		a.mustSave(h.Context(), 0)
		at := a.all(h.Context())[0].Place
		a.turn(func(ctx context.Context) {
			begin(ctx, a, b)
			a.awaitEmpty()
			a.isGone("Save", a.save(ctx, 2))
			a.isGone("SaveOnce", a.saveOnce(ctx, "id", 2))
			a.isUnknown("id")
			for what, with := range map[string][]Exchange{"Replace": {{Messages: []Message{question(2)}}}, "Replace by nothing": nil} {
				a.isGone(what, a.memory.Replace(ctx, at, at, with...))
			}
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
