package storetest

import (
	"context"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

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

// After a Delete, neither history nor IDs remain. An older holder is refused, and a later turn begins
// anew, also the turn of the Delete.
func deleted(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSaveOnce(h.Context(), "id", 1)
	a.mustSave(h.Context(), 2)
	used, fence := a.stale(func(ctx context.Context) { a.mustSave(ctx, 3) })
	if err := b.memory.Delete(h.Context()); err != nil {
		h.Fatal(err)
	}
	b.has()
	b.isUnknown("id")
	a.refused("Save", a.store.Save(used, question("late"), answer("late")), fence, fence+1)
	a.refused("Delete", a.store.Delete(used), fence, fence+1)
	a.mustSaveOnce(h.Context(), "id", 1)
	b.has(1)
	b.isUnder(h.Context(), "id", 1)
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 4)
		lease, _ := lockedmemory.Lease(ctx)
		w := storedriver.Clear{Write: a.write(lease, 5), Forget: true}
		for range 2 {
			if v, err := a.driver.Clear(ctx, w); err != nil || v.Outcome != storedriver.Done {
				h.Errorf("%+v, %v", v, err)
			}
		}
		late := storedriver.Append{Write: a.write(lease, 4), Content: content("late")}
		if v, err := a.driver.Append(ctx, late); err != nil || v.Outcome != storedriver.Taken {
			h.Errorf("a late Save: %+v, %v", v, err)
		}
		a.has()
	})
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 5)
		if err := a.memory.Delete(ctx); err != nil {
			h.Error(err)
		}
		a.mustSave(ctx, 6, 7)
	})
	b.has(6, 7)
}
