package storetest

import (
	"context"
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
