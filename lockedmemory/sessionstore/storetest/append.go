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
	ctx := lockedmemory.WithTurnID(h.Context(), "id")
	for range 2 {
		if err := a.memory.Append(ctx, messages(4)...); err != nil {
			h.Error(err)
		}
	}
	if err := a.memory.Append(ctx, messages(5)...); !errors.Is(err, sessionstore.ErrTurnConflict) {
		h.Errorf("other messages: %v; want ErrTurnConflict", err)
	}
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

// Answered returns the exchanges of an ID, and the number of those stored. It does so after trimming,
// Replace and Clear, and in a turn with another ID.
func answered(h *harness) {
	a := h.instance(&options{Retention: sessionstore.Retention{MaxExchanges: 60}}, nil)
	check := func(ctx context.Context, id string, stored int, want ...string) {
		h.Helper()
		exchanges, n, err := a.store.Answered(ctx, id)
		var got []string
		for _, e := range exchanges {
			got = append(got, e.Input().Text)
		}
		if err != nil || n != stored || !slices.Equal(got, want) {
			h.Errorf("under %s: %v of %d, %v; want %v of %d", id, got, n, err, want, stored)
		}
	}
	check(h.Context(), "one", 0)
	a.saveTurn("one", 1, 2)
	a.mustSave(h.Context(), "plain")
	check(h.Context(), "one", 2, "q1", "q2")
	a.turn(func(ctx context.Context) { check(ctx, "one", 2, "q1", "q2") })
	err := a.memory.Turn(lockedmemory.WithTurnID(h.Context(), "two"), func(ctx context.Context) error {
		check(ctx, "one", 2, "q1", "q2")
		check(ctx, "two", 0)
		a.mustSave(ctx, 3)
		check(ctx, "two", 1, "q3")
		return nil
	})
	if err != nil {
		h.Error(err)
	}
	check(h.Context(), "two", 1, "q3")
	a.turn(func(ctx context.Context) {
		all := a.all(ctx)
		all[1].Messages = exchange("edited").Messages
		if err := a.store.Replace(ctx, all[0].Place, all[1].Place, all[1]); err != nil {
			h.Error(err)
		}
	})
	check(h.Context(), "one", 2, "qedited")
	var names []any
	var want []string
	for n := range 59 {
		names, want = append(names, n), append(want, question(n).Text)
	}
	a.saveTurn("long", names...)
	a.mustSave(h.Context(), "last")
	check(h.Context(), "long", 59, want...)
	check(h.Context(), "one", 2) // it is trimmed
	if err := a.memory.Clear(h.Context()); err != nil {
		h.Error(err)
	}
	check(h.Context(), "long", 59)
	for _, id := range []string{"", strings.Repeat("x", 10<<10)} {
		if _, _, err := a.store.Answered(h.Context(), id); !errors.Is(err, lockedmemory.ErrTurnID) {
			h.Errorf("an ID of %d bytes: %v; want ErrTurnID", len(id), err)
		}
	}
}
