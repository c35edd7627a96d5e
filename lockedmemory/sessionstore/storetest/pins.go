package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

func pin(n any) Exchange {
	e := exchange(n)
	e.Pinned = true
	return e
}

// sees checks what each kind of read finds: the pinned exchanges and the others, in order.
func (i *instance) sees(pinned []any, others ...any) {
	i.Helper()
	i.has(slices.Concat(pinned, others)...)
	want := i.stored()
	if all := slices.Concat(pinned, others); !slices.Equal(want, all) {
		i.Errorf("Forward yields %v, want %v", want, all)
	}
	backward := i.names(i.store.Backward(i.Context(), lockedmemory.Place{}), 1e6)
	slices.Reverse(backward)
	if !slices.Equal(backward, want) {
		i.Errorf("Backward yields %v, Forward %v", backward, want)
	}
	for n, e := range i.all(i.Context()) {
		if e.Pinned != (n < len(pinned)) {
			i.Errorf("of %v, %v has Pinned %v", want, want[n], e.Pinned)
		}
		after := i.names(i.store.Forward(i.Context(), e.Place), 1e6)
		before := i.names(i.store.Backward(i.Context(), e.Place), 1e6)
		slices.Reverse(before)
		if got := slices.Concat(before, want[n:n+1], after); !slices.Equal(got, want) {
			i.Errorf("around %v, Backward yields %v and Forward %v", want[n], before, after)
		}
	}
	found, err := i.store.Search(i.Context(), "q", 1e6)
	slices.Reverse(found)
	if err != nil || len(found) != len(want) || len(want) > 0 && found[0].Text[1:] != want[0] {
		i.Errorf("Search finds %s, %v; want %v", text(found), err, want)
	}
}

func numbered(from, to int) (names []any) {
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprint(n))
	}
	return names
}

// A pinned exchange outlives all limits, is loaded first, and counts for none of them. A Replace of its
// range, a Clear and a Delete remove it.
func pinned(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	all := a.over(nil, nil)
	inPages := a.over(nil,
		func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: 1} })
	window := a.over(&options{view: sessionstore.Options{Window: 2}}, nil)
	check := func(pinned []any, others ...any) {
		h.Helper()
		a.turn(a.mustLoad) // trims
		a.sees(pinned, others...)
		inPages.sees(pinned, others...)
		window.has(slices.Concat(pinned, others[max(0, len(others)-2):])...)
		for n := range others {
			last, err := a.store.Last(h.Context(), n+1)
			if names := a.namesOf(last); err != nil || !slices.Equal(names, others[len(others)-n-1:]) {
				h.Errorf("Last(%d) returns %v, %v", n+1, names, err)
			}
		}
	}
	a.mustSave(h.Context(), numbered(1, 3)...)
	a.mustReplace(0, 1, pin("s1"))
	check([]any{"s1"}, "3")
	for n := 4; n <= 20; n++ {
		a.mustSave(h.Context(), n)
		kept := all.stored() // trimmed before the Save or after it
		all.sees([]any{"s1"}, kept[1:]...)
		if least := numbered(max(3, n-2), n); !slices.Equal(kept[max(1, len(kept)-len(least)):], least) || len(kept) > 5 {
			h.Errorf("after exchange %d, %v are stored", n, kept)
		}
	}
	check([]any{"s1"}, "18", "19", "20")
	a.mustReplace(0, 1, pin("s2"), pin("s3"))
	check([]any{"s2", "s3"}, "19", "20")
	a.turn(func(ctx context.Context) { // pins between others
		a.mustSave(ctx, 21, 22, 23)
		history := a.all(ctx)
		e := history[len(history)-2]
		e.Pinned = true
		if err := a.store.Replace(ctx, e.Place, e.Place, e); err != nil {
			h.Fatal(err)
		}
	})
	a.turn(a.mustLoad)
	a.has("s2", "s3", "20", "21", "22", "23")
	a.mustSave(h.Context(), 24)
	a.turn(a.mustLoad)
	a.has("s2", "s3", "21", "22", "23", "24")
	a.mustSave(h.Context(), 25, 26)
	check([]any{"s2", "s3", "22"}, "24", "25", "26")
	a.turn(func(ctx context.Context) { // it is pinned no more
		history := a.all(ctx)
		history[2].Pinned = false
		if err := a.store.Replace(ctx, history[1].Place, history[2].Place, history[2]); err != nil {
			h.Fatal(err)
		}
	})
	check([]any{"s2"}, "24", "25", "26")
	a.mustReplace(0, 0)
	check(nil, "24", "25", "26")
	a.mustReplace(2, 2, pin("s4"), exchange("27"))
	a.has("24", "25", "s4", "27")
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Fatal(err)
	}
	check(nil)
	a.mustSave(h.Context(), 28)
	a.mustReplace(0, 0, pin("s5"))
	a.mustSave(h.Context(), 29, 30, 31)
	check([]any{"s5"}, "29", "30", "31")
	if err := a.memory.Delete(h.Context()); err != nil {
		h.Fatal(err)
	}
	check(nil)
	a.mustSave(h.Context(), 33)
	check(nil, "33")
}

func (i *instance) namesOf(exchanges []Exchange) (names []any) {
	for _, e := range exchanges {
		names = append(names, e.Input().Text[1:])
	}
	return names
}

// A pinned exchange that gets another place, because the new content of a range has overtaken it, stays
// pinned.
func pinMoved(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 1}}, nil)
	a.mustSave(h.Context(), 1)
	a.mustReplace(0, 0, exchange("x"), pin("s"), exchange("y"))
	a.mustReplace(0, 0, exchange("v"), exchange("w"))
	if moved := a.all(h.Context())[2]; moved.Place.Sub < 6 {
		h.Fatalf("%+v has not moved", moved)
	}
	a.has("v", "w", "s", "y")
	a.mustSave(h.Context(), 2, 3)
	a.turn(a.mustLoad)
	a.sees([]any{"s"}, "3")
}

// MaxAge hides and removes the exchanges that are not pinned.
func pinnedMaxAge(h *harness) {
	const age = time.Second
	a := h.instance(&options{Retention: sessionstore.Retention{MaxAge: age}}, nil)
	all := a.over(nil, nil)
	a.mustSave(h.Context(), 1, 2)
	a.mustReplace(0, 0, pin("s"))
	for start := time.Now(); len(a.stored()) > 1; a.turn(a.mustLoad) { // the token of a turn is the clock
		if time.Since(start) > 10*age {
			h.Fatalf("after %s, %v are read", 10*age, a.stored())
		}
	}
	a.sees([]any{"s"})
	all.sees([]any{"s"}, "2")
	a.mustSave(h.Context(), 3)
	a.mustSave(h.Context(), 4)
	if kept := all.stored(); kept[0] != any("s") || slices.Contains(kept, any("2")) {
		h.Errorf("%v stay", kept)
	}
}

// A session expires with its pinned exchanges, here during a Load. It begins anew without them.
func pinnedExpires(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{IdleTTL: time.Second}}, nil)
	a.mustSave(h.Context(), 1, 2)
	a.mustReplace(0, 0, pin("s"))
	a.over(&options{view: sessionstore.Options{Window: 1}}, func(d storedriver.Driver) storedriver.Driver {
		return &beforePins{Driver: d, do: a.awaitEmpty}
	}).has()
	a.sees(nil)
	a.mustSave(h.Context(), 3)
	a.sees(nil, "3")
}

// Readers see the summaries and the history of one moment.
func pinsOneMoment(h *harness) {
	a := h.instance(&options{view: sessionstore.Options{Window: 3}}, nil)
	states := []string{a.state([]Exchange{})}
	var mu sync.Mutex
	var all sync.WaitGroup
	done := make(chan struct{})
	b := h.instance(&options{view: sessionstore.Options{Window: 3}}, nil)
	all.Go(func() {
		for {
			messages, err := b.store.Load(h.Context(), "")
			mu.Lock()
			whole := slices.Contains(states, textOf(messages))
			mu.Unlock()
			if !errors.Is(err, sessionstore.ErrChanged) && (err != nil || !whole) {
				h.Errorf("Load: %v: %s, a mixture", err, text(messages))
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	will := func(history ...Exchange) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, a.state(history))
	}
	summary := []Exchange{}
	for n := range 12 {
		var recent []Exchange
		for m := range 5 {
			recent = append(recent, exchange(fmt.Sprint(n, ".", m)))
			will(slices.Concat(summary, recent[max(0, m-2):])...)
			if err := a.memory.Append(h.Context(), recent[m].Messages...); err != nil {
				h.Error(err)
			}
		}
		summary = []Exchange{pin(fmt.Sprint("s", n))}
		will(summary...)
		if n%4 == 3 {
			summary = nil
			will()
			if err := a.memory.Clear(h.Context()); err != nil {
				h.Error(err)
			}
			continue
		}
		a.turn(func(ctx context.Context) {
			history := a.all(ctx)
			if err := a.store.Replace(ctx, history[0].Place, history[len(history)-1].Place, summary...); err != nil {
				h.Error(err)
			}
		})
	}
	close(done)
	all.Wait()
}

// A turn that is trimmed between two pages is not read in part, also behind a pinned exchange.
func pinnedTrimmedBetweenPages(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	a.mustSave(h.Context(), 1)
	a.mustReplace(0, 0, pin("s"))
	a.turn(func(ctx context.Context) { a.mustSave(ctx, 2, 3, 4, 5) })
	b := a.over(nil, func(d storedriver.Driver) storedriver.Driver {
		return &small{Driver: d, limit: 2, before: func(page int) {
			if page == 1 {
				a.mustSave(h.Context(), 6, 7, 8, 9)
			}
		}}
	})
	var seen []any
	var last error
	for e, err := range b.store.Forward(h.Context(), lockedmemory.Place{}) {
		if last = err; err == nil {
			seen = append(seen, e.Input().Text[1:])
		}
	}
	if !slices.Equal(seen, []any{"s", "2"}) || !errors.Is(last, sessionstore.ErrChanged) {
		h.Errorf("Forward yields %v, %v; want 2 exchanges and ErrChanged", seen, last)
	}
}

// beforePins calls a function before the first read of pinned exchanges alone.
type beforePins struct {
	storedriver.Driver
	once sync.Once
	do   func()
}

func (d *beforePins) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	if r.PinnedOnly {
		d.once.Do(d.do)
	}
	return d.Driver.Read(ctx, r)
}

// A session has one exchange, which is pinned. It is replaced after its place was read. A Load returns the
// session of one moment.
func pinReplacedBetweenPages(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), 1)
	a.mustReplace(0, 0, pin("old"))
	b := a.over(&options{view: sessionstore.Options{Window: 1}}, func(d storedriver.Driver) storedriver.Driver {
		return &beforePins{Driver: d, do: func() { a.mustReplace(0, 0, pin("new")) }}
	})
	b.has("new")
}

// All exchanges that were read are pinned when the session is cleared and goes on.
func pinsClearedBetweenPages(h *harness) {
	a := h.instance(nil, nil)
	a.mustSave(h.Context(), 1, 2)
	a.mustReplace(0, 0, pin("s"))
	a.over(nil, func(d storedriver.Driver) storedriver.Driver {
		return &small{Driver: d, limit: 1, before: func(page int) {
			if page == 1 {
				if err := a.memory.Clear(h.Context()); err != nil {
					h.Error(err)
				}
				a.mustSave(h.Context(), "new", "newer")
			}
		}}
	}).has("new", "newer")
}
