package sessionstore

import (
	"context"
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
// moment of the call.
//
// An entry that cannot be read is treated as Options.Broken says. With an error, Load returns no
// messages: [EntryError], [StaleError], distlock.ErrUnavailable, distlock.ErrRefused,
// distlock.ErrInvalidKey, distlock.ErrNotHeld if the lease is for another session, or the error of ctx.
func (s *Store[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	r, err := s.reader(ctx, opLoad)
	if err != nil {
		return nil, err
	}
	words := wordsOf(query)
	var found []Exchange[M]
	if s.opts.Window == 0 && r.most == 0 {
		for e, err := range s.forward(r, driver.Place{}, words) {
			if err != nil {
				return nil, err
			}
			found = append(found, e)
		}
	} else {
		found, err = s.backward(r, words, s.opts.Window, true)
		slices.Reverse(found)
	}
	if err != nil {
		return nil, err
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
	r, err := s.reader(ctx, opSearch)
	if err != nil || k == 0 {
		return nil, err
	}
	words := wordsOf(query)
	exchanges, err := s.backward(r, words, k, false)
	if err != nil {
		return nil, err
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
// to be held at once. The first turn is the oldest one that Retention.MaxExchanges keeps. If the session
// is cleared between two pages, the sequence goes on with the new history, see [Exchange.First]. An
// error ends the sequence; errors are those of [Store.Load].
//
// Each range over the sequence begins a new read. Exchanges takes no lock. A lease in ctx has the
// effect that [Store.Load] states.
func (s *Store[M, D]) Exchanges(ctx context.Context) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		r, err := s.reader(ctx, opExchanges)
		var after driver.Place
		if err == nil && r.most > 0 {
			after, err = r.beginning()
		}
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		var last driver.Place // of those yielded
		for e, err := range s.forward(r, after, nil) {
			e.First = err == nil && (last == driver.Place{} || last.Compare(r.oldest) < 0)
			if last = e.Place; !yield(e, err) {
				return
			}
		}
	}
}

// forward yields the exchanges after a place that match. An error ends the sequence.
func (s *Store[M, D]) forward(r *reader, after driver.Place, words []string) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		for req := (driver.Read{After: after}); ; {
			page, err := r.page(req, 0)
			if err != nil {
				yield(Exchange[M]{}, err)
				return
			}
			for _, entry := range page.Entries {
				e, ok, err := s.decode(r, entry, words)
				if (ok || err != nil) && (!yield(e, err) || err != nil) {
					return
				}
			}
			if req.After = page.Last; req.After == (driver.Place{}) {
				return
			}
		}
	}
}

// backward reads the history from its end, newest first, up to limit exchanges that match; 0: all.
// With whole, limit does not cut a turn: the oldest turn goes, unless it is the only one.
func (s *Store[M, D]) backward(r *reader, words []string, limit int, whole bool) (found []Exchange[M], err error) {
	first := 0
	if limit > 0 && len(words) == 0 {
		first = limit + 1
	}
	for turn, err := range r.turns(first) {
		if err != nil {
			return nil, err
		}
		newer := len(found)
		for _, entry := range turn {
			e, ok, err := s.decode(r, entry, words)
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, e)
			}
			switch {
			case limit == 0:
			case whole && newer > 0 && len(found) > limit:
				return found[:newer], nil
			case !whole && len(found) == limit:
				return found, nil
			}
		}
		if limit > 0 && len(found) >= limit {
			break
		}
	}
	return found, nil
}

// present leaves out exchanges that are no longer history: they were cleared or trimmed since the
// page was read.
func present[M any](r *reader, found []Exchange[M]) []Exchange[M] {
	return slices.DeleteFunc(found, func(e Exchange[M]) bool { return e.Place.Compare(r.oldest) < 0 })
}

// decode returns the exchange of an entry. ok says that it is history, can be read, and matches.
func (s *Store[M, D]) decode(r *reader, entry driver.Entry, words []string) (e Exchange[M], ok bool, err error) {
	if entry.Place.Compare(r.oldest) < 0 {
		return e, false, nil
	}
	e = Exchange[M]{Place: entry.Place, ID: entry.ID, Number: entry.Number}
	err = entry.Err
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
		return e, slices.ContainsFunc(e.Messages, func(m M) bool { return s.matches(m, words) }), nil
	case s.opts.Broken == Skip:
		s.opts.Logger.WarnContext(r.ctx, "sessionstore: an entry that cannot be read is left out",
			"operation", r.op, "place", e.Place, "error", err)
		return Exchange[M]{}, false, nil
	}
	return Exchange[M]{}, false, &EntryError{e.Place, err}
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
