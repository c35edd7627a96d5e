package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Exchange is what the tests replace.
type Exchange = lockedmemory.Exchange[Message]

func exchange(n any) Exchange { return Exchange{Messages: []Message{question(n), answer(n)}} }

// all returns the history.
func (i *instance) all(ctx context.Context) (found []Exchange) {
	i.Helper()
	for e, err := range i.store.Forward(ctx, lockedmemory.Place{}) {
		if err != nil {
			i.Fatalf("Forward: %v", err)
		}
		found = append(found, e)
	}
	return found
}

// replace replaces exchanges of the history by index.
func (i *instance) replace(ctx context.Context, first, last int, with ...Exchange) error {
	i.Helper()
	all := i.all(ctx)
	return i.store.Replace(ctx, all[first].Place, all[last].Place, with...)
}

func (i *instance) mustReplace(first, last int, with ...Exchange) {
	i.Helper()
	i.turn(func(ctx context.Context) {
		if err := i.replace(ctx, first, last, with...); err != nil {
			i.Fatalf("Replace of %d to %d: %v", first, last, err)
		}
	})
}

// A range of exchanges is replaced by others: at the beginning, in the middle and at the end, by more and
// by fewer, again and again. No place is used twice, and turns go on after it.
func replaced(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.turn(func(ctx context.Context) { a.mustSave(ctx, 1, 2) })
	a.mustSave(h.Context(), 3, 4, 5)
	seen := make(map[lockedmemory.Place]string)
	check := func(want ...any) {
		h.Helper()
		b.has(want...)
		all := b.all(h.Context())
		for n, e := range all {
			text := e.Input().Text
			if old, ok := seen[e.Place]; ok && old != text {
				h.Errorf("the place %s was that of %s, and is that of %s", e.Place, old, text)
			}
			if seen[e.Place] = text; n > 0 && all[n-1].Place.Compare(e.Place) >= 0 {
				h.Errorf("places do not rise: %v, %v", all[n-1].Place, e.Place)
			}
		}
	}
	check(1, 2, 3, 4, 5)
	a.mustReplace(1, 1, exchange("2a"), exchange("2b"), exchange("2c"))
	check(1, "2a", "2b", "2c", 3, 4, 5)
	b.mustReplace(2, 2, exchange("x"), exchange("y"))
	check(1, "2a", "x", "y", "2c", 3, 4, 5)
	a.mustReplace(4, 7, exchange("z"))
	check(1, "2a", "x", "y", "z")
	a.mustReplace(0, 0)
	check("2a", "x", "y", "z")
	a.mustReplace(3, 3)
	a.mustReplace(2, 2, exchange("w"))
	check("2a", "x", "w")
	a.mustSave(h.Context(), 6)
	a.turn(func(ctx context.Context) {
		a.mustSave(ctx, 7)
		for _, name := range []string{"7a", "7b"} {
			if err := a.replace(ctx, 4, 4, exchange(name)); err != nil {
				h.Error(err)
			}
		}
		a.mustSave(ctx, 8)
	})
	check("2a", "x", "w", 6, "7b", 8)
	b.turn(func(ctx context.Context) {
		if err := b.replace(ctx, 0, 5); err != nil {
			h.Error(err)
		}
		check()
		b.mustSave(ctx, 9)
	})
	check(9)
	b.mustReplace(0, 0)
	b.mustSave(h.Context(), 10)
	check(10)
}

// An exchange keeps its turn and its ID if it keeps its place.
func replacedKeepsIDs(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	a.turn(func(ctx context.Context) {
		a.mustSaveOnce(ctx, "one", 1)
		a.mustSave(ctx, 2)
	})
	a.mustSaveOnce(h.Context(), "two", 3)
	a.turn(func(ctx context.Context) {
		all := a.all(ctx)
		all[0].Messages, all[2].Messages = exchange("1a").Messages, exchange("3a").Messages
		added := exchange("new")
		added.ID = "one" // it has no Place, so it has no ID
		if err := a.store.Replace(ctx, all[0].Place, all[2].Place, all[0], added, all[2]); err != nil {
			h.Fatal(err)
		}
	})
	a.has("1a", "new", "3a")
	a.isUnder(h.Context(), "one", "1a")
	a.isUnder(h.Context(), "two", "3a")
	all := a.all(h.Context())
	fences := [3]int64{all[0].Place.Fence, all[1].Place.Fence, all[2].Place.Fence}
	if fences[0] == fences[1] || fences[1] != fences[2] || all[1].ID != "" {
		h.Errorf("%+v", all)
	}
	a.mustSaveOnce(h.Context(), "two", 3) // it is known
	a.has("1a", "new", "3a")
	a.mustSave(h.Context(), 4)
	a.turn(a.mustLoad) // the first turn is trimmed
	a.has("new", "3a", 4)
}

// A long history is replaced in parts. Readers page at the same time, and see it before or after.
func replacedWhileRead(h *harness) {
	a := h.instance(nil, nil)
	const long = 170
	a.turn(func(ctx context.Context) {
		for n := range long {
			a.mustSave(ctx, n)
		}
	})
	states := []string{a.state(nil)}
	var mu sync.Mutex
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, opts := range []*options{nil, {view: sessionstore.Options{Window: 1000}}} {
		b := h.instance(opts, func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: 70} })
		all.Go(func() {
			for {
				messages, err := b.store.Load(h.Context(), "")
				got := textOf(messages)
				mu.Lock()
				whole := slices.Contains(states, got)
				mu.Unlock()
				if errors.Is(err, sessionstore.ErrChanged) {
					continue
				} else if err != nil || !whole {
					h.Errorf("Load: %v: %d messages, a mixture", err, len(messages))
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range 12 {
		a.turn(func(ctx context.Context) {
			history := a.all(ctx)
			from, to := n*7, n*7+n%3
			with := []Exchange{exchange(fmt.Sprint("r", n))}
			if n%4 == 3 {
				for m := range 60 {
					with = append(with, exchange(fmt.Sprint("r", n, "-", m)))
				}
			}
			mu.Lock()
			states = append(states, a.state(slices.Concat(history[:from], with, history[to+1:])))
			mu.Unlock()
			if err := a.store.Replace(ctx, history[from].Place, history[to].Place, with...); err != nil {
				h.Error(err)
			}
		})
	}
	close(done)
	all.Wait()
	if messages, _ := a.store.Load(h.Context(), ""); textOf(messages) != states[len(states)-1] {
		h.Error("the last Replace is not there")
	}
}

// state is the text of a history; nil: that of the session.
func (i *instance) state(history []Exchange) string {
	if history == nil {
		history = i.all(i.Context())
	}
	var messages []Message
	for _, e := range history {
		messages = append(messages, e.Messages...)
	}
	return textOf(messages)
}

func textOf(messages []Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Text + " ")
	}
	return b.String()
}

// A range that is not there, or that is turned round, and a lease that is over change nothing.
func replaceRefused(h *harness) {
	a, b := h.instance(nil, nil), h.instance(nil, nil)
	a.mustSave(h.Context(), 1, 2, 3)
	old := a.all(h.Context())
	ctx, fence := a.stale(nil)
	b.mustReplace(1, 1, exchange("2a"))
	a.refused("Replace", a.store.Replace(ctx, old[0].Place, old[2].Place), fence, fence+1)
	a.refused("Replace of a place that is gone", a.store.Replace(ctx, old[1].Place, old[1].Place), fence, fence+1)
	if err := a.store.Replace(h.Context(), old[0].Place, old[2].Place); !errors.Is(err, distlock.ErrNotHeld) {
		h.Errorf("without a lease: %v", err)
	}
	beyond := old[2].Place
	beyond.N++
	late := exchange("late")
	late.Place = old[2].Place
	between := func(ctx context.Context, n int64) error { // a place in the range, which no exchange can have
		e := exchange("between")
		e.Place = lockedmemory.Place{Fence: old[0].Place.Fence + 1, N: n}
		return a.store.Replace(ctx, old[0].Place, old[2].Place, e)
	}
	a.turn(func(ctx context.Context) {
		for name, replace := range map[string]func() error{
			"a replaced place": func() error { return a.store.Replace(ctx, old[1].Place, old[1].Place) },
			"to nowhere":       func() error { return a.store.Replace(ctx, old[0].Place, beyond) },
			"from nowhere":     func() error { return a.store.Replace(ctx, old[1].Place, old[2].Place) },
			"turned round":     func() error { return a.store.Replace(ctx, old[2].Place, old[0].Place) },
			"zero":             func() error { return a.store.Replace(ctx, lockedmemory.Place{}, lockedmemory.Place{}) },
			"from zero":        func() error { return a.store.Replace(ctx, lockedmemory.Place{}, old[2].Place) },
			"a marker": func() error {
				return a.store.Replace(ctx, lockedmemory.Place{Fence: old[0].Place.Fence}, old[2].Place)
			},
			"an alias": func() error {
				alias := lockedmemory.Place{Fence: old[0].Place.Fence, N: old[0].Place.N + 1, Sub: -1_000_000}
				return a.store.Replace(ctx, alias, alias)
			},
			"to an alias": func() error {
				alias := lockedmemory.Place{Fence: old[2].Place.Fence, N: old[2].Place.N - 1, Sub: 1_000_000}
				return a.store.Replace(ctx, old[0].Place, alias)
			},
			"a negative token": func() error {
				negative := lockedmemory.Place{Fence: -1, N: 1}
				return a.store.Replace(ctx, negative, negative)
			},
			"a large number": func() error {
				large := lockedmemory.Place{Fence: old[0].Place.Fence, N: math.MaxInt64}
				return a.store.Replace(ctx, large, large)
			},
			"places fall":        func() error { return a.store.Replace(ctx, old[0].Place, old[2].Place, late, old[0]) },
			"a new marker":       func() error { return between(ctx, 0) },
			"a new negative one": func() error { return between(ctx, -1) },
			"a new large number": func() error { return between(ctx, math.MaxInt64) },
			"place out of range": func() error { return a.store.Replace(ctx, old[0].Place, old[0].Place, late) },
		} {
			if err := replace(); !errors.Is(err, sessionstore.ErrRange) {
				h.Errorf("%s: %v; want ErrRange", name, err)
			}
		}
		named := func(id string) Exchange {
			e := exchange("named")
			e.Place, e.ID = old[0].Place, id
			return e
		}
		for name, with := range map[string][]Exchange{
			"an ID of 10 KB": {named(strings.Repeat("x", 10<<10))}, "an ID that stands twice": {named("id"), named("id")},
		} {
			if err := a.replace(ctx, 0, 0, with...); !errors.Is(err, lockedmemory.ErrInvalidID) {
				h.Errorf("%s: %v; want ErrInvalidID", name, err)
			}
		}
		if err := a.replace(ctx, 0, 0, Exchange{}); !errors.Is(err, distlock.ErrInvalidOption) {
			h.Errorf("no message: %v", err)
		}
		large := Exchange{Messages: []Message{{Text: strings.Repeat("x", 9<<20)}}}
		if err := a.replace(ctx, 0, 0, large); !errors.Is(err, sessionstore.ErrTooLarge) {
			h.Errorf("a large message: %v", err)
		}
		if err := a.replace(ctx, 0, 0, Exchange{Messages: messages(257)}); !errors.Is(err, sessionstore.ErrTooLarge) {
			h.Errorf("many messages: %v", err)
		}
	})
	a.has(1, "2a", 3)
}

// Copies of a Replace that come late change nothing.
func lateReplaces(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), 1, 2, 3)
	var edit storedriver.Replace
	send := func(when string, want ...storedriver.Outcome) {
		h.Helper()
		if v, err := a.driver.Replace(h.Context(), edit); err != nil || !slices.Contains(want, v.Outcome) {
			h.Errorf("%s: %+v, %v; want %v", when, v, err, want)
		}
	}
	a.turn(func(ctx context.Context) {
		lease, _ := lockedmemory.Lease(ctx)
		all := a.all(ctx)
		edit = storedriver.Replace{Write: a.write(lease, 5), From: all[1].Place, To: all[1].Place,
			New: []storedriver.Entry{{Place: all[1].Place, Messages: content("2a").Messages}}}
		send("first", storedriver.Done)
		a.has(1, "2a", 3)
		send("again", storedriver.Done)
		again, marker := edit, lockedmemory.Place{Fence: lease.Fence(), N: 5}
		edit.Op, edit.From, edit.To = newOp(), all[2].Place, all[2].Place
		send("another at the last place", storedriver.Taken)
		edit.N, edit.From, edit.To = 6, marker, marker
		send("at no exchange", storedriver.Range)
		edit = again
		v, err := a.driver.Append(ctx, storedriver.Append{Write: a.write(lease, 7), Content: content("4")})
		if err != nil || v.Outcome != storedriver.Done {
			h.Errorf("%+v, %v", v, err)
		}
		send("after a Save", storedriver.Done, storedriver.Taken)
		edit.Op = newOp()
		send("another at its place", storedriver.Taken)
		v, err = a.driver.Clear(ctx, storedriver.Clear{Write: a.write(lease, 8)})
		if err != nil || v.Outcome != storedriver.Done {
			h.Errorf("%+v, %v", v, err)
		}
		send("after a Clear", storedriver.Taken)
	})
	a.mustSave(h.Context(), 5)
	send("after another lease", storedriver.Stale)
	a.has(5)
}
