package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
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
	if err := a.store.Save(late, question(8), answer(8)); !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("a Save under the ended lease: %v", err)
	}
	a.has(7)
}
