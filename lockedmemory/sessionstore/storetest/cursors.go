package storetest

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// names returns the names of at most n exchanges of a sequence.
func (i *instance) names(exchanges iter.Seq2[Exchange, error], n int) (names []any) {
	i.Helper()
	if n == 0 {
		return nil
	}
	for e, err := range exchanges {
		if err != nil {
			i.Errorf("after %v: %v", names, err)
			return names
		}
		if names = append(names, e.Input().Text[1:]); len(names) == n {
			break
		}
	}
	return names
}

func reversed(all []any) []any {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// Forward and Backward begin at any place, in pages of any size, and end where the caller breaks.
func cursors(h *harness) {
	a := h.instance(nil, nil)
	all := []any{"0", "1", "2", "3", "4", "5", "6", "7", "8"}
	for pair := range slices.Chunk(all, 2) { // turns of 2, and a marker on top
		a.turn(func(ctx context.Context) { a.mustSave(ctx, pair...) })
		a.turn(a.mustLoad)
	}
	history := a.all(h.Context())
	check := func(what string, got, want []any) {
		h.Helper()
		if !slices.Equal(got, want) {
			h.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for limit := 1; limit < 5; limit++ {
		b := h.instance(nil, func(d storedriver.Driver) storedriver.Driver { return &small{Driver: d, limit: limit} })
		check("all", b.names(b.store.Forward(h.Context(), lockedmemory.Place{}), 100), all)
		check("all, back", b.names(b.store.Backward(h.Context(), lockedmemory.Place{}), 100), reversed(all))
		for n, e := range history {
			check("after", b.names(b.store.Forward(h.Context(), e.Place), 100), all[n+1:])
			check("before", b.names(b.store.Backward(h.Context(), e.Place), 100), reversed(all[:n]))
			check("3 after", b.names(b.store.Forward(h.Context(), e.Place), 3), all[n+1:min(n+4, 9)])
			check("3 before", b.names(b.store.Backward(h.Context(), e.Place), 3), reversed(all[max(0, n-3):n]))
		}
		for n, want := range map[int][]any{0: nil, 1: all[8:], 2: all[8:], 3: all[6:], 8: all[2:], 9: all, 100: all} {
			last, err := b.store.Last(h.Context(), n)
			if err != nil || len(last) != len(want) || len(want) > 0 && last[0].Input() != question(want[0]) {
				h.Errorf("the last %d: %d exchanges, %v; want %v", n, len(last), err, want)
			}
		}
	}
	if _, err := a.store.Last(h.Context(), -1); !errors.Is(err, distlock.ErrInvalidOption) {
		h.Errorf("the last -1: %v", err)
	}
	for _, at := range []lockedmemory.Place{
		{Fence: -1, N: 1}, {Fence: 1, N: -1}, {Fence: 1, N: math.MaxInt64}, {N: 1, Sub: 1_000_000},
	} {
		for _, read := range []iter.Seq2[Exchange, error]{
			a.store.Forward(h.Context(), at), a.store.Backward(h.Context(), at),
		} {
			for e, err := range read {
				if !errors.Is(err, distlock.ErrInvalidOption) {
					h.Errorf("from %s: %s, %v; want ErrInvalidOption", at, e.Place, err)
				}
			}
		}
	}
	a.mustReplace(3, 5)
	check("after what is gone", a.names(a.store.Forward(h.Context(), history[4].Place), 100), all[6:])
	check("before what is gone", a.names(a.store.Backward(h.Context(), history[4].Place), 100), reversed(all[:3]))
}

// Between two pages from a place, in both directions, the history is replaced.
func cursorsReplacedBetween(h *harness) {
	a := h.instance(nil, nil)
	for i, forward := range []bool{true, false, true, false} {
		with := []Exchange{exchange("new")}[:i/2] // or by nothing
		a.mustSave(h.Context(), 1, 2, 3, 4, 5, 6)
		b := h.instance(nil, func(d storedriver.Driver) storedriver.Driver {
			return &small{Driver: d, limit: 2, before: func(page int) {
				if page == 1 {
					a.mustReplace(0, 0, with...)
				}
			}}
		})
		history := a.all(h.Context())
		read := b.store.Forward(h.Context(), history[0].Place)
		if !forward {
			read = b.store.Backward(h.Context(), history[len(history)-1].Place)
		}
		n, last := 0, error(nil)
		for _, err := range read {
			n, last = n+1, err
		}
		if n != 3 || !errors.Is(last, sessionstore.ErrChanged) {
			h.Errorf("forward %t: %d exchanges, %v; want 2, and ErrChanged", forward, n-1, last)
		}
		if err := a.memory.Clear(h.Context()); err != nil {
			h.Error(err)
		}
	}
}
