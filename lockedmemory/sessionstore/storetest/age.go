package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Turns that are too old are not read. The next turn removes them, whole, but for the newest one.
func maxAge(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxAge: 2 * time.Second}}, nil)
	all := a.over(nil, nil)
	var old []any
	for n := range 150 {
		old = append(old, fmt.Sprint("old", n))
	}
	a.turn(func(ctx context.Context) { a.mustSave(ctx, old[:120]...) })
	a.saveTurn("id", old[120:140]...)
	a.turn(func(ctx context.Context) { a.mustSave(ctx, old[140:]...) })
	a.has(old...)
	time.Sleep(2100 * time.Millisecond)
	a.has()
	a.isEmpty(h.Context())
	if exchanges, stored, err := a.store.Answered(h.Context(), "id"); err != nil || len(exchanges) != 0 || stored != 20 {
		h.Errorf("Answered: %d of %d, %v", len(exchanges), stored, err)
	}
	all.has(old...)
	for n := range 3 {
		a.mustSave(h.Context(), fmt.Sprint(n))
		kept := all.names(all.store.Forward(h.Context(), lockedmemory.Place{}), 1000)
		most := [][]any{old[120:], old[140:], nil}[n] // a driver may remove more turns at once
		rest := kept[:len(kept)-n-1]
		if !slices.Equal(rest, most) && !slices.Equal(rest, old[140:]) && len(rest) > 0 || n == 2 && len(rest) > 0 {
			h.Errorf("after %d turns, %v stay", n+1, kept)
		}
	}
	a.has("0", "1", "2")
}

// isEmpty checks that each kind of read finds nothing.
func (i *instance) isEmpty(ctx context.Context) {
	i.Helper()
	last, err := i.store.Last(ctx, 10)
	found, err2 := i.store.Search(ctx, "old", 10)
	forward := i.names(i.store.Forward(ctx, lockedmemory.Place{}), 10)
	backward := i.names(i.store.Backward(ctx, lockedmemory.Place{}), 10)
	if err != nil || err2 != nil || len(last)+len(found)+len(forward)+len(backward) > 0 {
		i.Errorf("Last %v, %v; Search %v, %v; Forward %v; Backward %v", last, err, found, err2, forward, backward)
	}
}
