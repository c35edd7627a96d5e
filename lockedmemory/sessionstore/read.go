package sessionstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// pageSize is how many entries are read at once: more would keep the service busy for too long.
const pageSize = 2000

// Exchange is what one Save has stored.
type Exchange[M any] struct {
	Messages []M
	ID       string // the turn's, see lockedmemory.WithTurnID; empty if it had none
	Number   int    // of the exchange under ID, from 1; 0 without an ID
	Place    Place  // under which lease, and which of its writes
	// First says that nothing before it belongs to the history: it is the first exchange of the session, or all that
	// Exchanges has yielded was cleared since.
	First bool
}

// Input returns the first message of a pair.
func (e Exchange[M]) Input() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[0]
	}
	return m
}

// Output returns the last message of a pair.
func (e Exchange[M]) Output() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[len(e.Messages)-1]
	}
	return m
}

// Place is where an exchange stands in its session. Places of a session only rise.
type Place struct {
	Fence int64 // the fencing token of the lease that the exchange was stored under
	N     int64 // the number of the write under that token, from 1
	Sub   int64 // 0
}

// Compare returns -1, 0 or 1.
func (p Place) Compare(q Place) int { return driver.Place(p).Compare(driver.Place(q)) }

// String writes the place as errors do. In Redis, it is the ID of the Stream's entry.
func (p Place) String() string { return driver.Place(p).String() }

// Load returns the messages of the history in order, input and output of each Save, the last Options.Window Saves. A query, if it is not
// empty, restricts that to Saves with a message whose text contains all words of the query, in upper or lower case.
//
// Under a lease, as in a lockedmemory Turn, the store refuses all older leases from then on; a Load itself may be refused
// so, with a [StaleError]. Without a lease it shows what was there at some moment of the call.
//
// Entries that cannot be read are left out: Load then returns all others together with
// [EntryErrors]. After any other error it returns no messages: distlock.ErrUnavailable,
// distlock.ErrRefused, distlock.ErrInvalidKey, or the error of ctx.
func (s *Store[M, D]) Load(ctx context.Context, query string) ([]M, error) {
	r, err := s.reader(ctx, opLoad)
	if err != nil {
		return nil, err
	}
	var (
		words    = wordsOf(query)
		turns    []Exchange[M]
		problems EntryErrors
		accept   = func(t Exchange[M]) bool { return s.matches(t, words) }
	)
	if s.opts.Window == 0 && s.opts.MaxExchanges == 0 {
		turns, problems, err = s.forward(r, accept)
	} else {
		turns, problems, err = s.backward(r, s.opts.Window, accept)
		slices.Reverse(turns)
		slices.Reverse(problems)
	}
	if err != nil {
		return nil, err
	}
	messages := make([]M, 0, 2*len(turns))
	for _, t := range turns {
		messages = append(messages, t.Messages...)
	}
	if problems != nil {
		return messages, problems
	}
	return messages, nil
}

// Search returns up to k results, the last messages of the history first, whose text contains all words of query. Entries that cannot be read are
// treated as by [Store.Load].
func (s *Store[M, D]) Search(ctx context.Context, query string, k int) ([]D, error) {
	if k < 0 {
		return nil, invalidOption("k is %d, but must not be negative", k)
	}
	r, err := s.reader(ctx, opSearch)
	if err != nil || k == 0 {
		return nil, err
	}
	words := wordsOf(query)
	turns, problems, err := s.backward(r, k, func(t Exchange[M]) bool { return s.matches(t, words) })
	if err != nil {
		return nil, err
	}
	found := make([]D, 0, min(k, 2*len(turns)))
	for _, t := range turns {
		for _, m := range slices.Backward(t.Messages) {
			if len(found) < k && contains(s.codec.Text(m), words) {
				found = append(found, s.codec.Document(m))
			}
		}
	}
	if problems != nil {
		return found, problems
	}
	return found, nil
}

// Exchanges yields the history from its beginning, a page at a time, also if it is too long to be held at once. Entries that
// cannot be read are yielded as an [EntryError], and the next ones follow; any other error ends the sequence. If the session is cleared in
// between, it begins anew with what stands there since, see Turn.First.
//
// It begins each time it is ranged over. It takes no lock; ctx, with a lease or without, is that of [Store.Load].
func (s *Store[M, D]) Exchanges(ctx context.Context) iter.Seq2[Exchange[M], error] {
	return func(yield func(Exchange[M], error) bool) {
		r, err := s.reader(ctx, opExchanges)
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		var first, last driver.Place // of those yielded since the beginning
		for after := (driver.Place{}); ; {
			page, err := r.page(driver.Read{After: after, Limit: pageSize})
			if err != nil {
				yield(Exchange[M]{}, err)
				return
			}
			if page.Oldest.Compare(last) > 0 {
				first = driver.Place{}
			}
			for _, e := range page.Entries {
				t, problem := s.decode(e)
				if problem != nil {
					if !yield(Exchange[M]{}, problem) {
						return
					}
					continue
				}
				if t.First = first == (driver.Place{}); t.First {
					first = e.Place
				}
				last = e.Place
				if !yield(t, nil) {
					return
				}
			}
			if after = page.Last; after == (driver.Place{}) {
				return
			}
		}
	}
}

// forward reads the history from its beginning.
func (s *Store[M, D]) forward(r *reader, accept func(Exchange[M]) bool) (turns []Exchange[M], problems EntryErrors, err error) {
	for after := (driver.Place{}); ; {
		page, err := r.page(driver.Read{After: after, Limit: pageSize})
		if err != nil {
			return nil, nil, err
		}
		// What was cleared or trimmed since an earlier page is no history any more.
		turns, problems = dropBefore(turns, problems, page.Oldest)
		if turns == nil {
			turns = make([]Exchange[M], 0, len(page.Entries))
		}
		for _, e := range page.Entries {
			if t, problem := s.decode(e); problem != nil {
				problems = append(problems, problem)
			} else if accept(t) {
				turns = append(turns, t)
			}
		}
		if after = page.Last; after == (driver.Place{}) {
			return turns, problems, nil
		}
	}
}

// backward reads the history from its end, as far as it is kept, up to limit turns that are accepted; 0: all.
func (s *Store[M, D]) backward(r *reader, limit int, accept func(Exchange[M]) bool) (turns []Exchange[M], problems EntryErrors, err error) {
	seen := 0
	for before := (driver.Place{}); ; {
		want := pageSize
		if limit > 0 {
			want = min(want, max(limit-len(turns), 10))
		}
		page, err := r.page(driver.Read{Before: before, Backward: true, Limit: want})
		if err != nil {
			return nil, nil, err
		}
		turns, problems = dropBefore(turns, problems, page.Oldest)
		for _, e := range page.Entries {
			if t, problem := s.decode(e); problem != nil {
				problems = append(problems, problem)
			} else if accept(t) {
				turns = append(turns, t)
			}
			if seen++; len(turns) == limit && limit > 0 || seen == s.opts.MaxExchanges {
				return turns, problems, nil
			}
		}
		if before = page.Last; before == (driver.Place{}) {
			return turns, problems, nil
		}
	}
}

func dropBefore[M any](turns []Exchange[M], problems EntryErrors, oldest driver.Place) ([]Exchange[M], EntryErrors) {
	if oldest == (driver.Place{}) {
		return turns, problems
	}
	turns = slices.DeleteFunc(turns, func(t Exchange[M]) bool { return driver.Place(t.Place).Compare(oldest) < 0 })
	problems = slices.DeleteFunc(problems, func(e *EntryError) bool { return driver.Place(e.Place).Compare(oldest) < 0 })
	if len(problems) == 0 {
		problems = nil
	}
	return turns, problems
}

func (s *Store[M, D]) decode(e driver.Entry) (t Exchange[M], problem *EntryError) {
	if e.Err != nil {
		return t, &EntryError{Place(e.Place), e.Err}
	}
	t.Place, t.ID, t.Number = Place(e.Place), e.ID, e.Number
	for i, text := range e.Messages {
		m, err := s.codec.Decode(text)
		if err != nil {
			return t, &EntryError{t.Place, fmt.Errorf("decoding message %d: %w: %w", i+1, ErrCodec, err)}
		}
		t.Messages = append(t.Messages, m)
	}
	return t, nil
}

// reader reads pages of one session.
type reader struct {
	ctx    context.Context
	op     operation
	access driver.Access
	tenure *tenure // nil: without a lease
	driver driver.Driver
	caller *caller
}

func (s *Store[M, D]) reader(ctx context.Context, op operation) (*reader, error) {
	r := &reader{ctx: ctx, op: op, driver: s.driver, caller: &s.caller}
	var err error
	if _, ok := lockedmemory.Lease(ctx); !ok {
		r.access.Session, err = s.session(ctx, op)
		return r, err
	}
	r.access.Session, r.access.Lease, err = s.underLease(ctx, op)
	if err == nil {
		r.tenure = s.tenures.of(r.access.Lease)
	}
	return r, err
}

func (r *reader) page(req driver.Read) (driver.Page, error) {
	page, err := r.read(req)
	if page.Oldest != (driver.Place{}) {
		page.Entries = slices.DeleteFunc(page.Entries, func(e driver.Entry) bool { return e.Place.Compare(page.Oldest) < 0 })
	}
	return page, err
}

func (r *reader) read(req driver.Read) (driver.Page, error) {
	req.Session = r.access.Session
	if r.tenure == nil {
		page, err := call(r.ctx, r.caller, func(ctx context.Context) (driver.Page, error) { return r.driver.Read(ctx, req) })
		return page, failed(r.ctx, r.op, err)
	}
	return under(r.ctx, r.caller, r.op, r.access, r.tenure, func(a driver.Access) func(context.Context) (driver.Page, error) {
		req := req // a call may outlive the wait for it
		req.Access = &a
		return func(ctx context.Context) (driver.Page, error) { return r.driver.Read(ctx, req) }
	})
}

// wordsOf are the words of a query, in lower case.
func wordsOf(query string) []string { return strings.Fields(strings.ToLower(query)) }

func contains(text string, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func (s *Store[M, D]) matches(t Exchange[M], words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(t.Messages, func(m M) bool { return contains(s.codec.Text(m), words) })
}
