package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// saveBytes saves exchanges whose answers have a size.
func (i *instance) saveBytes(ctx context.Context, size int, names ...any) {
	i.Helper()
	for _, n := range names {
		if err := i.memory.Save(ctx, question(n), Message{"assistant", strings.Repeat("x", size)}); err != nil {
			i.Fatalf("Save of %v: %v", n, err)
		}
	}
}

// stored returns the names of all exchanges.
func (i *instance) stored() []any {
	i.Helper()
	return i.names(i.store.Forward(i.Context(), lockedmemory.Place{}), 1e6)
}

// The first access of a lease removes the oldest turns beyond MaxBytes, whole, but not the newest one. A
// Save inside a turn removes nothing.
func maxBytes(h *harness) {
	const most, size, turns = 64 << 10, 1000, 60
	a := h.instance(&options{Retention: sessionstore.Retention{MaxBytes: most}}, nil)
	var all []any
	turn := func(n int) {
		h.Helper()
		a.turn(func(ctx context.Context) {
			names := []any{fmt.Sprint(n, "a"), fmt.Sprint(n, "b")}
			a.saveBytes(ctx, size, names...)
			all = append(all, names...)
		})
	}
	a.mustSaveOnce(h.Context(), "id", "first")
	all = append(all, "first")
	for n := range turns {
		turn(n)
		kept := a.stored()
		if !slices.Equal(kept, all[len(all)-len(kept):]) || len(kept) < len(all) && len(kept)%2 != 0 {
			h.Fatalf("of %d exchanges, %v stay", len(all), kept)
		}
		if len(kept) < len(all) && len(kept)*size < most/2 || (len(kept)-2)*size > most {
			h.Fatalf("with MaxBytes %d, %d exchanges of %d bytes stay", most, len(kept), size)
		}
	}
	a.isGoneUnder("id")

	var long []any
	for n := range 80 {
		long = append(long, fmt.Sprint("long", n))
	}
	a.turn(func(ctx context.Context) {
		a.mustLoad(ctx)
		before := a.stored()
		a.saveBytes(ctx, size, long...)
		if kept := a.stored(); !slices.Equal(kept, slices.Concat(before, long)) {
			h.Errorf("after Saves in a turn, %v stay", kept)
		}
	})
	for range 3 {
		a.turn(a.mustLoad)
		if kept := a.stored(); !slices.Equal(kept, long) {
			h.Errorf("of a newest turn beyond MaxBytes, %v stay", kept)
		}
	}
	a.saveBytes(h.Context(), size, "1")
	a.saveBytes(h.Context(), size, "2")
	if kept := a.stored(); !slices.Equal(kept, []any{"1", "2"}) {
		h.Errorf("after two more turns, %v stay", kept)
	}
	a.mustReplace(0, 0, Exchange{Messages: []Message{question("large"), answer(strings.Repeat("x", 2*most))}})
	a.saveBytes(h.Context(), size, "3")
	if kept := a.stored(); !slices.Equal(kept, []any{"2", "3"}) {
		h.Errorf("after a Replace by a large exchange, %v stay", kept)
	}
}
