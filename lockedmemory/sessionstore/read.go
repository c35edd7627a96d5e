package sessionstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Load returns the messages of the history in order: the last exchanges, as Options.Window and
// [Retention] bound them. With a query, these are exchanges with a message whose text contains all words
// of the query, in upper or lower case.
//
// Limits never cut a turn, and never the newest turn. Pinned exchanges come in addition, at their places.
//
// After a Load under a lease, as in a lockedmemory Turn, the store refuses all older leases. Without a
// lease, Load returns the history of some moment of the call. If the history is cleared, replaced or
// trimmed between two of its pages, Load begins again, 3 times, and then fails with [ErrChanged].
//
// With an error, Load returns no messages: [EntryError], see Options.SkipBroken, [StaleError],
// [ErrDeleted], distlock.ErrUnavailable, distlock.ErrRefused, distlock.ErrInvalidKey, distlock.ErrNotHeld if
// the lease is for another session, or the error of ctx.
func (s *Store[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	return readWhole(ctx, s, opLoad, func(r *reading) []M {
		words := wordsOf(query)
		found := s.history(r, cmp.Or(s.opts.Window, unlimited), words, true)
		messages := make([]M, 0, 2*len(found))
		for _, e := range found {
			messages = append(messages, e.Messages...)
		}
		return messages
	})
}

// readWhole makes a read that returns all at once. If the history changes between two pages, it begins again.
func readWhole[M, D, T any](ctx context.Context, s *Store[M, D], op operation, read func(*reading) []T) ([]T, error) {
	for left := rereads; ; left-- {
		r, err := s.reading(ctx, op)
		if err != nil {
			return nil, err
		}
		found := read(r)
		switch {
		case r.err == nil:
			return found, nil
		case !errors.Is(r.err, ErrChanged) || left == 0:
			return nil, r.err
		}
	}
}

// rereads is how often a read begins again.
const rereads = 3

// history returns the last exchanges with all words, as a window bounds them. With pins, it returns all
// pinned exchanges, and the window is of the others.
func (s *Store[M, D]) history(r *reading, window int, words []string, pins bool) []lockedmemory.Exchange[M] {
	backward := window < unlimited || r.maxExchanges < unlimited || s.driver.Retention().MaxAge > 0
	groups := r.pages(storedriver.Read{}, unlimited)
	if backward {
		groups = r.turns(window, words)
	}
	var found []lockedmemory.Exchange[M]
	for group := range groups {
		if pins {
			group = notPinned(group)
		}
		exchanges := s.decode(r, group, words)
		if len(found) > 0 && len(found)+len(exchanges) > window {
			break
		}
		if found = append(found, exchanges...); len(found) >= window {
			break
		}
	}
	if backward {
		slices.Reverse(found)
	}
	found = present(r, found)
	if pins {
		found = byPlace(append(found, s.decode(r, r.pins(lockedmemory.Place{}, end), words)...))
	}
	return found
}

// Last returns the last n exchanges in order: whole turns, and at most n exchanges. The newest turn is
// whole, also if it is longer. Pinned exchanges count as the others. The errors are those of [Store.Load],
// and distlock.ErrInvalidOption for a negative n.
func (s *Store[M, D]) Last(ctx context.Context, n int) ([]lockedmemory.Exchange[M], error) {
	if n < 0 {
		return nil, invalidOption("n is %d, but must not be negative", n)
	}
	return readWhole(ctx, s, opLast, func(r *reading) []lockedmemory.Exchange[M] {
		if n == 0 {
			return nil
		}
		return s.history(r, n, nil, false)
	})
}

// Search returns up to k results: the messages whose text contains all words of query, the newest
// first. It sees all pinned exchanges. The errors are those of [Store.Load], and distlock.ErrInvalidOption
// for a negative k.
func (s *Store[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	if k < 0 {
		return nil, invalidOption("k is %d, but must not be negative", k)
	}
	words := wordsOf(query)
	return readWhole(ctx, s, opSearch, func(r *reading) []D {
		if k == 0 {
			return nil
		}
		var exchanges []lockedmemory.Exchange[M]
		for turn := range r.turns(k, words) {
			if exchanges = append(exchanges, s.decode(r, notPinned(turn), words)...); len(exchanges) >= k {
				break
			}
		}
		exchanges = append(present(r, exchanges), s.decode(r, r.pins(lockedmemory.Place{}, end), words)...)
		found := make([]D, 0, min(k, 2*len(exchanges)))
		for _, e := range slices.Backward(byPlace(exchanges)) {
			for _, m := range slices.Backward(e.Messages) {
				if len(found) < k && s.matches(m, words) {
					found = append(found, s.codec.Document(m))
				}
			}
		}
		return found
	})
}

// Forward yields the history in order, a page at a time: the exchanges after a place, or with the zero
// Place all that [Retention] keeps. The place need not exist any more. Break where you have enough. The
// Place of the last exchange is where to go on, also in another process. A Place that no exchange can have
// is refused with distlock.ErrInvalidOption.
//
// An error ends the sequence. The errors are those of [Store.Load], and [ErrChanged] if the history is
// cleared, replaced or trimmed between two pages. Each range over the sequence begins a new read. A change
// between two such reads is not reported: replaced content after the place is yielded, perhaps again.
func (s *Store[M, D]) Forward(ctx context.Context, after lockedmemory.Place,
) iter.Seq2[lockedmemory.Exchange[M], error] {
	return s.iterate(ctx, opForward, after, func(r *reading) iter.Seq[[]storedriver.Entry] {
		return r.forward(after)
	})
}

// Backward is [Store.Forward] from a place to the beginning, or with the zero Place from the end: the
// newest exchange comes first. If a Replace between two reads has put new exchanges at or above the place,
// Backward does not yield them.
func (s *Store[M, D]) Backward(ctx context.Context, before lockedmemory.Place,
) iter.Seq2[lockedmemory.Exchange[M], error] {
	return s.iterate(ctx, opBackward, before, func(r *reading) iter.Seq[[]storedriver.Entry] {
		lowest, first := before, lockedmemory.Place{}
		groups := r.turns(unlimited, nil)
		if before == (lockedmemory.Place{}) {
			lowest = end
		}
		if lowest != end || r.maxExchanges == unlimited {
			first = r.beginning(lockedmemory.Place{})
			groups = r.pages(storedriver.Read{Backward: true, From: before}, unlimited)
		}
		return func(yield func([]storedriver.Entry) bool) {
			for group := range groups {
				kept := slices.DeleteFunc(group, func(e storedriver.Entry) bool {
					return e.Place.Compare(first) < 0 || e.Place.Fence < r.since
				})
				if len(kept) > 0 {
					lowest = kept[len(kept)-1].Place
				}
				if !yield(kept) {
					return
				}
				if len(kept) < len(group) {
					break
				}
			}
			older := r.pins(lockedmemory.Place{}, lowest)
			slices.Reverse(older)
			yield(older)
		}
	})
}

// iterate yields the exchanges from a place on. read returns the entries of a reading in groups.
func (s *Store[M, D]) iterate(ctx context.Context, op operation, from lockedmemory.Place,
	read func(*reading) iter.Seq[[]storedriver.Entry]) iter.Seq2[lockedmemory.Exchange[M], error] {
	return func(yield func(lockedmemory.Exchange[M], error) bool) {
		r, err := s.reading(ctx, op)
		if err == nil && !isPlace(from) {
			err = invalidOption("%s: no exchange has the place %s: give the Place of one", op, from)
		}
		if err != nil {
			yield(lockedmemory.Exchange[M]{}, err)
			return
		}
		for group := range read(r) {
			for _, e := range s.decode(r, group, nil) {
				if !yield(e, nil) {
					return
				}
			}
		}
		if r.err != nil {
			yield(lockedmemory.Exchange[M]{}, r.err)
		}
	}
}

// present leaves out exchanges that are no longer history: they were cleared or trimmed since the
// page was read.
func present[M any](r *reading, found []lockedmemory.Exchange[M]) []lockedmemory.Exchange[M] {
	return slices.DeleteFunc(found, func(e lockedmemory.Exchange[M]) bool {
		return !e.Pinned && e.Place.Compare(r.oldest) < 0
	})
}

// decode returns the exchanges of entries that are history, can be read, and match. An entry that
// cannot be read is left out, or becomes reading.err.
func (s *Store[M, D]) decode(r *reading, entries []storedriver.Entry, words []string) (found []lockedmemory.Exchange[M]) {
	for _, entry := range entries {
		if !entry.Pinned && (entry.Place.Compare(r.oldest) < 0 || entry.Place.Fence < r.since) {
			continue
		}
		e := lockedmemory.Exchange[M]{Place: entry.Place, ID: entry.ID, Pinned: entry.Pinned}
		err := entry.Err
		for i, text := range entry.Messages {
			var m M
			if m, err = s.codec.Decode(text); err != nil {
				err = fmt.Errorf("decoding message %d: %w: %w", i+1, ErrCodec, err)
				break
			}
			e.Messages = append(e.Messages, m)
		}
		switch {
		case err == nil:
			if slices.ContainsFunc(e.Messages, func(m M) bool { return s.matches(m, words) }) {
				found = append(found, e)
			}
		case s.opts.SkipBroken:
			s.opts.Logger.WarnContext(r.ctx, "sessionstore: an entry that cannot be read is left out",
				"operation", r.op, "place", e.Place, "error", err)
		default:
			r.err = &EntryError{e.Place, err}
			return found
		}
	}
	return found
}

// wordsOf are the words of a query, in lower case.
func wordsOf(query string) []string { return strings.Fields(strings.ToLower(query)) }

// matches reports whether the text of a message contains all words.
func (s *Store[M, D]) matches(m M, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(s.codec.Text(m))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
