package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// messages returns n messages, each with a number.
func messages(n int) []Message {
	all := make([]Message, n)
	for i := range all {
		all[i] = Message{"tool", strconv.Itoa(i)}
	}
	return all
}

// An exchange has 1 to 256 messages. It counts as one for limits, IDs and repetitions.
func appended(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 3}}, nil)
	for n, size := range []int{1, 3, 256} {
		if err := a.memory.Append(h.Context(), messages(size)...); err != nil {
			h.Fatalf("%d messages: %v", size, err)
		}
		if all := a.all(h.Context()); len(all) != n+1 || !slices.Equal(all[n].Messages, messages(size)) {
			h.Errorf("%d messages: %d exchanges, the last has %d", size, len(all), len(all[n].Messages))
		}
	}
	for range 2 {
		if err := a.memory.SaveOnce(h.Context(), "id", messages(4)...); err != nil {
			h.Error(err)
		}
	}
	if err := a.memory.SaveOnce(h.Context(), "id", messages(5)...); !errors.Is(err, sessionstore.ErrIDConflict) {
		h.Errorf("other messages: %v; want ErrIDConflict", err)
	}
	a.turn(a.mustLoad) // trims
	if n := len(a.all(h.Context())); n != 3 {
		h.Errorf("%d exchanges, want 3", n)
	}
	large := Message{Text: strings.Repeat("x", 6<<20)}
	for name, refused := range map[string]struct {
		messages []Message
		err      error
	}{
		"none":     {nil, distlock.ErrInvalidOption},
		"too many": {messages(257), sessionstore.ErrTooLarge},
		"large":    {[]Message{large, large, large}, sessionstore.ErrTooLarge},
	} {
		if err := a.memory.Append(h.Context(), refused.messages...); !errors.Is(err, refused.err) {
			h.Errorf("%s: %v; want %v", name, err, refused.err)
		}
	}
	if n := len(a.all(h.Context())); n != 3 {
		h.Errorf("%d exchanges after refusals, want 3", n)
	}
}

// Answered returns the exchange of an ID, or that it is gone: after trimming, Replace and Clear, in a turn,
// and pinned.
func answered(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 60}}, nil)
	a.isUnknown("one")
	a.turn(func(ctx context.Context) {
		a.mustSaveOnce(ctx, "one", 1)
		a.mustSave(ctx, 2)
	})
	a.mustSave(h.Context(), "plain")
	a.isUnder(h.Context(), "one", 1)
	a.turn(func(ctx context.Context) {
		a.isUnder(ctx, "one", 1)
		a.mustSaveOnce(ctx, "two", 3)
		a.isUnder(ctx, "two", 3)
	})
	for _, pinned := range []bool{true, false} { // a pinned exchange is the first
		a.turn(func(ctx context.Context) {
			all := a.all(ctx)
			e := all[len(all)-1]
			if !pinned {
				e = all[0]
			}
			e.Pinned = pinned
			if err := a.store.Replace(ctx, e.Place, e.Place, e); err != nil {
				h.Error(err)
			}
		})
		a.isUnder(h.Context(), "two", 3)
	}
	a.turn(func(ctx context.Context) {
		all := a.all(ctx)
		added := slices.Repeat([]Exchange{exchange("added")}, 120) // all stand at the place of the edited one
		all[0].Messages = exchange("edited").Messages
		if err := a.store.Replace(ctx, all[0].Place, all[0].Place, append(added[:50], all[0])...); err != nil {
			h.Error(err)
		}
	})
	a.isUnder(h.Context(), "one", "edited")
	a.turn(func(ctx context.Context) {
		all := a.all(ctx)
		last := all[len(all)-1]
		last.ID = ""
		if err := a.store.Replace(ctx, last.Place, last.Place, last); err != nil {
			h.Error(err)
		}
	})
	a.isGoneUnder("two")
	a.turn(func(ctx context.Context) {
		for n := range 59 {
			a.mustSave(ctx, n)
		}
	})
	a.mustSaveOnce(h.Context(), "last", "last")
	a.isUnder(h.Context(), "last", "last")
	a.turn(a.mustLoad)
	a.isGoneUnder("one") // it is trimmed
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Error(err)
	}
	a.isGoneUnder("last")
	for _, id := range []string{"", strings.Repeat("x", 10<<10)} {
		_, _, err := a.store.Answered(h.Context(), id)
		for _, err := range []error{err, a.saveOnce(h.Context(), id, 1)} {
			if !errors.Is(err, lockedmemory.ErrInvalidID) {
				h.Errorf("an ID of %d bytes: %v; want ErrInvalidID", len(id), err)
			}
		}
	}
	a.has()
}
