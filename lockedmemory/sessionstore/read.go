package sessionstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// Load returns the messages of the history in order: the last exchanges, as Options.Window and
// Retention.MaxExchanges bound them. A query, if it is not empty, restricts that to exchanges with a
// message whose text contains all words of the query, in upper or lower case. Options.Window then
// bounds the exchanges that match.
//
// Limits never cut a turn. The newest turn is always whole, also if it is longer than the limit.
//
// After a Load under a lease, as in a lockedmemory Turn, the store refuses all older leases. It refuses
// the Load of an older lease with a [StaleError]. Without a lease, Load returns the history of some
// moment of the call. If the history is cleared, replaced or trimmed between two of its pages, Load
// begins again, 3 times, and then fails with [ErrChanged].
//
// An entry that cannot be read ends the call, or is left out: see Options.SkipBroken. With an error,
// Load returns no messages: [EntryError], [StaleError], distlock.ErrUnavailable, distlock.ErrRefused,
// distlock.ErrInvalidKey, distlock.ErrNotHeld if the lease is for another session, or the error of ctx.
func (s *Store[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	return again(func() ([]M, error) { return s.load(ctx, query) })
}

// again reads, and reads again if the history changes between two pages.
func again[T any](read func() ([]T, error)) (found []T, err error) {
	for range 1 + rereads {
		if found, err = read(); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return found, err
}

// rereads is how often Load and Search begin again.
const rereads = 3

func (s *Store[M, D]) load(ctx context.Context, query string) ([]M, error) {
	r, err := s.request(ctx, opLoad)
	if err != nil {
		return nil, err
	}
	words, window := wordsOf(query), cmp.Or(s.opts.Window, all)
	backward := window < all || r.most < all
	groups := r.pages(driver.Read{}, all)
	if backward {
		groups = r.turns(window, words)
	}
	var found []Exchange[M]
	for group := range groups {
		exchanges := s.decode(r, group, words)
		if len(found) > 0 && len(found)+len(exchanges) > window {
			break
		}
		if found = append(found, exchanges...); len(found) >= window {
			break
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if backward {
		slices.Reverse(found)
	}
	messages := make([]M, 0, 2*len(found))
	for _, e := range present(r, found) {
		messages = append(messages, e.Messages...)
	}
	return messages, nil
}

// Search returns up to k results: the messages whose text contains all words of query, the newest
// first. Entries that cannot be read, and errors, are those of [Store.Load]. A negative k is refused with
// distlock.ErrInvalidOption.
func (s *Store[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	if k < 0 {
		return nil, invalidOption("k is %d, but must not be negative", k)
	}
	return again(func() ([]D, error) { return s.search(ctx, query, k) })
}

func (s *Store[M, D]) search(ctx context.Context, query string, k int) ([]D, error) {
	r, err := s.request(ctx, opSearch)
	if err != nil || k == 0 {
		return nil, err
	}
	words := wordsOf(query)
	var exchanges []Exchange[M]
	for turn := range r.turns(k, words) {
		if exchanges = append(exchanges, s.decode(r, turn, words)...); len(exchanges) >= k {
			break
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	found := make([]D, 0, min(k, 2*len(exchanges)))
	for _, e := range present(r, exchanges) {
		for _, m := range slices.Backward(e.Messages) {
			if len(found) < k && s.matches(m, words) {
				found = append(found, s.codec.Document(m))
			}
		}
	}
	return found, nil
}

// Exchanges yields the history from its beginning, a page at a time, so the history may be too long
// to be held at once. The first turn is the oldest one that Retention.MaxExchanges keeps. An error ends
// the sequence; errors are those of [Store.Load]. If the history is cleared, replaced or trimmed between
// two pages, the error is [ErrChanged].
//
// Each range over the sequence begins a new read. Exchanges takes no lock. A lease in ctx has the
// effect that [Store.Load] states.
func (s *Store[M, D]) Exchanges(ctx context.Context) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		r, err := s.request(ctx, opExchanges)
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		for page := range r.pages(driver.Read{From: r.beginning()}, all) {
			for _, e := range s.decode(r, page, nil) {
				if !yield(e, nil) {
					return
				}
			}
		}
		if r.err != nil {
			yield(Exchange[M]{}, r.err)
		}
	}
}

// present leaves out exchanges that are no longer history: they were cleared or trimmed since the
// page was read.
func present[M any](r *request, found []Exchange[M]) []Exchange[M] {
	return slices.DeleteFunc(found, func(e Exchange[M]) bool { return e.Place.Compare(r.oldest) < 0 })
}

// decode returns the exchanges of entries that are history, can be read, and match. An entry that
// cannot be read is left out, or becomes request.err.
func (s *Store[M, D]) decode(r *request, entries []driver.Entry, words []string) (found []Exchange[M]) {
	for _, entry := range entries {
		if entry.Place.Compare(r.oldest) < 0 {
			continue
		}
		e := Exchange[M]{Place: entry.Place, ID: entry.ID, Number: entry.Number}
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
