package sessionstore

import (
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
// [Retention] bound them, and the pinned ones. With a query, these are exchanges with a message whose text
// contains all words of the query, in upper or lower case.
//
// After a Load under a lease, as in a lockedmemory Turn, the store refuses all older leases. Without a
// lease, Load returns the history of some moment of the call. With an error, it returns no messages.
func (s *Store[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	words := strings.Fields(strings.ToLower(query))
	return readWhole(ctx, s, opLoad, func(r *pageReader) []M {
		var found []lockedmemory.Exchange[M]
		if s.opts.Window == 0 {
			for page := range r.pages(storedriver.Read{}, unlimited) {
				found = append(found, s.decode(r, page, words)...)
			}
			found = present(r, found)
		} else {
			found = s.last(r, s.opts.Window, words, true)
			found = append(found, s.decode(r, r.pins(), words)...)
			slices.SortFunc(found, func(a, b lockedmemory.Exchange[M]) int { return a.Place.Compare(b.Place) })
		}
		messages := make([]M, 0, 2*len(found))
		for _, e := range found {
			messages = append(messages, e.Messages...)
		}
		return messages
	})
}

// readWhole makes a read that returns all at once. If the history changes between two pages, it begins again.
func readWhole[M, D, T any](ctx context.Context, s *Store[M, D], op operation, read func(*pageReader) []T) ([]T, error) {
	for left := rereads; ; left-- {
		r, err := s.pageReader(ctx, op)
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

// last returns the last n exchanges with all words, in order: whole turns, and the newest turn in any case.
// With pinsApart, it leaves out the pinned exchanges.
func (s *Store[M, D]) last(r *pageReader, n int, words []string, pinsApart bool) (found []lockedmemory.Exchange[M]) {
	limit := unlimited
	if len(words) == 0 {
		limit = min(n, unlimited-1) + 1 // one more shows if a turn is whole
	}
	turn, newer := int64(0), 0 // the turn that is read, and the exchanges of newer turns
pages:
	for page := range r.pages(storedriver.Read{Backward: true}, limit) {
		for i, entry := range page {
			if entry.Place.Fence != turn {
				if len(found) >= n {
					break pages
				}
				turn, newer = entry.Place.Fence, len(found)
			}
			if !pinsApart || !entry.Pinned {
				found = append(found, s.decode(r, page[i:i+1], words)...)
			}
			if r.err != nil || newer > 0 && len(found) > n {
				found = found[:newer]
				break pages
			}
		}
	}
	slices.Reverse(found)
	return present(r, found)
}

// Last returns the last n exchanges in order: whole turns, and more than n exchanges for the newest turn
// alone. Pinned exchanges count as the others. Further error: distlock.ErrInvalidOption for a negative n.
func (s *Store[M, D]) Last(ctx context.Context, n int) ([]lockedmemory.Exchange[M], error) {
	if n < 0 {
		return nil, invalidOption("n is %d, but must not be negative", n)
	}
	return readWhole(ctx, s, opLast, func(r *pageReader) []lockedmemory.Exchange[M] {
		return s.last(r, n, nil, false)
	})
}

// Search returns up to k results: the messages whose text contains all words of query, the newest
// first. Further error: distlock.ErrInvalidOption for a negative k.
func (s *Store[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	if k < 0 {
		return nil, invalidOption("k is %d, but must not be negative", k)
	}
	words := strings.Fields(strings.ToLower(query))
	return readWhole(ctx, s, opSearch, func(r *pageReader) []D {
		if k == 0 {
			return nil
		}
		limit := unlimited
		if len(words) == 0 {
			limit = k
		}
		var exchanges []lockedmemory.Exchange[M]
		for page := range r.pages(storedriver.Read{Backward: true}, limit) {
			if exchanges = append(exchanges, s.decode(r, page, words)...); len(exchanges) >= k {
				break
			}
		}
		found := make([]D, 0, min(k, 2*len(exchanges)))
		for _, e := range present(r, exchanges) {
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
// Place of the last exchange is where to go on, also in another process. An error ends the sequence. Further
// error: distlock.ErrInvalidOption for a Place that no exchange can have. Each range over the sequence begins
// a new read. A change between two such reads is not reported: replaced content may be yielded again.
func (s *Store[M, D]) Forward(ctx context.Context, after lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[M], error] {
	return s.iterate(ctx, opForward, storedriver.Read{From: after})
}

// Backward is [Store.Forward] from a place to the beginning, or with the zero Place from the end: the
// newest exchange comes first. If a Replace between two reads has put new exchanges at or above the place,
// Backward does not yield them.
func (s *Store[M, D]) Backward(ctx context.Context, before lockedmemory.Place) iter.Seq2[lockedmemory.Exchange[M], error] {
	return s.iterate(ctx, opBackward, storedriver.Read{From: before, Backward: true})
}

// iterate yields the exchanges that a read asks for.
func (s *Store[M, D]) iterate(ctx context.Context, op operation, read storedriver.Read,
) iter.Seq2[lockedmemory.Exchange[M], error] {
	return func(yield func(lockedmemory.Exchange[M], error) bool) {
		r, err := s.pageReader(ctx, op)
		if err == nil && !isPlace(read.From) {
			err = invalidOption("%s: no exchange has the place %s: give the Place of one", op, read.From)
		}
		if err != nil {
			yield(lockedmemory.Exchange[M]{}, err)
			return
		}
		for page := range r.pages(read, unlimited) {
			for _, e := range s.decode(r, page, nil) {
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
func present[M any](r *pageReader, found []lockedmemory.Exchange[M]) []lockedmemory.Exchange[M] {
	return slices.DeleteFunc(found, func(e lockedmemory.Exchange[M]) bool {
		return !e.Pinned && e.Place.Compare(r.oldest) < 0
	})
}

// decode returns the exchanges of entries that are history, can be read, and match. An entry that
// cannot be read is left out, or becomes pageReader.err.
func (s *Store[M, D]) decode(r *pageReader, entries []storedriver.Entry, words []string) (found []lockedmemory.Exchange[M]) {
	for _, entry := range entries {
		if !entry.Pinned && (entry.Place.Compare(r.oldest) < 0 || entry.Place.Fence < r.minFence) {
			continue
		}
		e := lockedmemory.Exchange[M]{Place: entry.Place, ID: entry.ID, Also: entry.Also, Pinned: entry.Pinned}
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

// matches reports whether the text of a message contains all words.
func (s *Store[M, D]) matches(m M, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(s.codec.Text(m))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
