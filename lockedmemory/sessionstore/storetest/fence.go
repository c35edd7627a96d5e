package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// After an access of any kind has shown a token, the store refuses accesses of all kinds under lower
// tokens.
func refusesOlderLeases(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	want := []any{0}
	a.mustSave(h.Context(), 0)
	for name, show := range map[string]func(ctx context.Context) error{
		"Load":   func(ctx context.Context) error { _, err := b.memory.Load(ctx, ""); return err },
		"Search": func(ctx context.Context) error { _, err := b.memory.Search(ctx, "q", 1); return err },
		"Forward": func(ctx context.Context) error {
			for _, err := range b.store.Forward(ctx, lockedmemory.Place{}) {
				return err
			}
			return errors.New("no exchanges")
		},
		"Save": func(ctx context.Context) error {
			want = append(want, "new")
			return b.save(ctx, "new")
		},
		"SaveOnce that is known": func(ctx context.Context) error {
			return b.saveOnce(ctx, "known", "known")
		},
	} {
		if name == "SaveOnce that is known" {
			want = append(want, "known")
			a.mustSaveOnce(h.Context(), "known", "known")
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
			a.refused("SaveOnce after "+name,
				a.store.SaveOnce(unused, "stale", question("stale"), answer("stale")), fence2, mark)
			a.refused("Clear after "+name, a.store.Clear(used), fence, mark)
			_, err := a.store.Load(unused, "")
			a.refused("Load after "+name, err, fence2, mark)
		})
	}
	a.has(want...)
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
		if v, err := i.driver.Append(ctx, storedriver.Append{Write: w, Content: content(n)}); err != nil ||
			v.Outcome != storedriver.Done {
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
			w.Fence += 1_000_000 // a later token of the lock must not be equal
			if v, err := b.driver.Append(ctx, storedriver.Append{Write: w, Content: content("other")}); err != nil ||
				v.Outcome != storedriver.Done {
				h.Fatalf("%+v, %v", v, err)
			}
			a.refused("Save", a.save(ctx, "unaware"), fence, w.Fence)
			a.refused("SaveOnce", a.saveOnce(ctx, "unaware", "unaware"), fence, w.Fence)
			a.refused("Clear", a.memory.Clear(ctx), fence, w.Fence)
		})
	}
	a.mustSave(h.Context(), 1)
	a.has(0, "other", "other", 1)
}
