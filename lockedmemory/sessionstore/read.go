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

// Exchange is the stored form of one Save.
type Exchange[M any] struct {
	Messages []M
	ID       string // the turn's, see lockedmemory.WithTurnID; empty if it had none
	Number   int    // of the exchange under ID, from 1; 0 without an ID
	Place    Place
	// First says that the history begins here: no exchange before this one belongs to it. Exchanges
	// yields another First after a Clear.
	First bool
}

// Input returns the first message. Without messages, it returns the zero value.
func (e Exchange[M]) Input() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[0]
	}
	return m
}

// Output returns the last message. Without messages, it returns the zero value.
func (e Exchange[M]) Output() (m M) {
	if len(e.Messages) > 0 {
		m = e.Messages[len(e.Messages)-1]
	}
	return m
}

// Place is where an exchange stands in its session. Places of a session only rise. A turn in the
// store is all exchanges with one Fence.
type Place struct {
	Fence int64 // the fencing token of the lease that the exchange was stored under
	N     int64 // the number of the write under that token, from 1
	Sub   int64 // 0
}

// Compare returns -1, 0 or 1.
func (p Place) Compare(q Place) int { return driver.Place(p).Compare(driver.Place(q)) }

// String writes the place as errors do. In Redis, it is the ID of the Stream's entry.
func (p Place) String() string { return driver.Place(p).String() }

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
	if s.opts.Window == 0 && s.driver.Retention().MaxExchanges == 0 {
		found, err = s.forward(r, words)
	} else {
		found, err = s.backward(r, words, s.opts.Window, true)
		slices.Reverse(found)
	}
	if err != nil {
		return nil, err
	}
	messages := make([]M, 0, 2*len(found))
	for _, e := range found {
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
	for _, e := range exchanges {
		for _, m := range slices.Backward(e.Messages) {
			if len(found) < k && contains(s.codec.Text(m), words) {
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
		if err == nil && s.driver.Retention().MaxExchanges > 0 {
			after, err = s.beginning(r)
		}
		if err != nil {
			yield(Exchange[M]{}, err)
			return
		}
		var first, last driver.Place // of those yielded since the beginning
		for {
			page, err := r.page(driver.Read{After: after}, 0)
			if err != nil {
				yield(Exchange[M]{}, err)
				return
			}
			if page.Oldest.Compare(last) > 0 {
				first = driver.Place{}
			}
			for _, entry := range page.Entries {
				e, ok, err := s.decode(r, entry)
				if err != nil {
					yield(Exchange[M]{}, err)
					return
				}
				if !ok {
					continue
				}
				if e.First = first == (driver.Place{}); e.First {
					first = entry.Place
				}
				last = entry.Place
				if !yield(e, nil) {
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
func (s *Store[M, D]) forward(r *reader, words []string) (found []Exchange[M], err error) {
	for after := (driver.Place{}); ; {
		page, err := r.page(driver.Read{After: after}, 0)
		if err != nil {
			return nil, err
		}
		found = dropBefore(found, page.Oldest) // cleared or trimmed since an earlier page
		for _, entry := range page.Entries {
			e, ok, err := s.decode(r, entry)
			if err != nil {
				return nil, err
			}
			if ok && s.matches(e, words) {
				found = append(found, e)
			}
		}
		if after = page.Last; after == (driver.Place{}) {
			return found, nil
		}
	}
}

// backward reads the history from its end, newest first, up to limit exchanges that match; 0: all.
// With whole, limit does not cut a turn: the oldest turn goes, unless it is the only one.
func (s *Store[M, D]) backward(r *reader, words []string, limit int, whole bool) (found []Exchange[M], err error) {
	begin := 0 // where the turn that is being read begins in found
	kept := kept{most: s.driver.Retention().MaxExchanges}
	for before := (driver.Place{}); ; {
		ask := kept.ask()
		// On the first page alone: entries that cannot be read would make all further pages small.
		if before == (driver.Place{}) && limit > 0 && len(words) == 0 && (ask == 0 || limit < ask) {
			ask = limit + 1
		}
		page, err := r.page(driver.Read{Before: before, Backward: true}, ask)
		if err != nil {
			return nil, err
		}
		found = dropBefore(found, page.Oldest)
		begin = min(begin, len(found))
		for _, entry := range page.Entries {
			if kept.begins(entry.Place) {
				begin = len(found)
			}
			if kept.over() || limit > 0 && begin >= limit {
				return found[:begin], nil
			}
			e, ok, err := s.decode(r, entry)
			if err != nil {
				return nil, err
			}
			if ok && s.matches(e, words) {
				found = append(found, e)
			}
			switch {
			case limit == 0:
			case whole && begin > 0 && len(found) > limit:
				return found[:begin], nil
			case !whole && kept.certain() && len(found) >= limit:
				return found, nil
			}
		}
		if before = page.Last; before == (driver.Place{}) {
			return found, nil
		}
	}
}

// beginning returns the place before the oldest exchange that Retention.MaxExchanges keeps.
func (s *Store[M, D]) beginning(r *reader) (after driver.Place, err error) {
	kept := kept{most: s.driver.Retention().MaxExchanges}
	for before := (driver.Place{}); ; {
		page, err := r.page(driver.Read{Before: before, Backward: true}, kept.ask())
		if err != nil {
			return after, err
		}
		for _, entry := range page.Entries {
			newer := kept.fence
			if kept.begins(entry.Place) {
				after = driver.Place{Fence: newer}
			}
			if kept.over() {
				return after, nil
			}
		}
		if before = page.Last; before == (driver.Place{}) {
			return driver.Place{}, nil
		}
	}
}

// kept finds the turns that Retention.MaxExchanges keeps, among entries that come newest first.
type kept struct {
	most  int // 0: all
	seen  int
	turns int
	fence int64 // of the turn that is being read
}

// begins counts an entry, and reports whether a turn begins with it.
func (k *kept) begins(p driver.Place) bool {
	k.seen++
	if p.Fence == k.fence {
		return false
	}
	k.fence = p.Fence
	k.turns++
	return true
}

// over reports whether the turn that is being read is not kept.
func (k *kept) over() bool { return k.most > 0 && k.seen > k.most && k.turns > 1 }

// certain reports whether the entries so far are kept, however long their turns are.
func (k *kept) certain() bool { return k.most == 0 || k.turns == 1 }

// ask returns the number of further entries that decide which turns are kept; 0: unknown.
func (k *kept) ask() int {
	if k.most == 0 {
		return 0
	}
	return max(k.most+1-k.seen, 0)
}

func dropBefore[M any](found []Exchange[M], oldest driver.Place) []Exchange[M] {
	if oldest == (driver.Place{}) {
		return found
	}
	return slices.DeleteFunc(found, func(e Exchange[M]) bool { return driver.Place(e.Place).Compare(oldest) < 0 })
}

// decode returns the exchange of an entry. False without an error: it cannot be read, and is left
// out.
func (s *Store[M, D]) decode(r *reader, entry driver.Entry) (e Exchange[M], ok bool, err error) {
	e = Exchange[M]{Place: Place(entry.Place), ID: entry.ID, Number: entry.Number}
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
		return e, true, nil
	case s.opts.Broken == Skip:
		s.opts.Logger.WarnContext(r.ctx, "sessionstore: an entry that cannot be read is left out", "operation", r.op, "place", e.Place, "error", err)
		return e, false, nil
	}
	return e, false, &EntryError{e.Place, err}
}

// reader reads pages of one session.
type reader struct {
	ctx    context.Context
	op     operation
	access driver.Access
	tenure *tenure // nil: without a lease
	driver driver.Driver
	size   int // of an exchange, as estimated; see page
}

const (
	maxReply  = 16 << 20 // of a page, in bytes, if exchanges are of the estimated size
	maxPage   = 2048     // entries
	firstSize = 1 << 20
)

func (s *Store[M, D]) reader(ctx context.Context, op operation) (*reader, error) {
	r := &reader{ctx: ctx, op: op, driver: s.driver, size: firstSize}
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

// page reads as many entries as maxReply allows, but at most ask, if that is not 0. Small exchanges
// double the size of each page.
func (r *reader) page(req driver.Read, ask int) (driver.Page, error) {
	req.Limit = max(maxReply/r.size, 1)
	if ask > 0 {
		req.Limit = min(req.Limit, ask)
	}
	page, err := r.read(req)
	r.size = max(r.size/2, maxReply/maxPage)
	for _, entry := range page.Entries {
		size := len(entry.ID) + entry.Size
		for _, text := range entry.Messages {
			size += len(text)
		}
		r.size = max(r.size, size)
	}
	if page.Oldest != (driver.Place{}) {
		page.Entries = slices.DeleteFunc(page.Entries, func(e driver.Entry) bool { return e.Place.Compare(page.Oldest) < 0 })
	}
	return page, err
}

func (r *reader) read(req driver.Read) (driver.Page, error) {
	req.Session = r.access.Session
	if r.tenure == nil {
		page, err := call(r.ctx, func(ctx context.Context) (driver.Page, error) { return r.driver.Read(ctx, req) })
		return page, failed(r.ctx, r.op, err)
	}
	turn, _ := lockedmemory.TurnID(r.ctx)
	if turn != nil {
		if _, known := turn.Next(); !known {
			req.ID = turn.ID
		}
	}
	page, err := under(r.ctx, r.op, r.access, r.tenure, func(a driver.Access) func(context.Context) (driver.Page, error) {
		req := req // a call may outlive the wait for it
		req.Access = &a
		return func(ctx context.Context) (driver.Page, error) {
			page, err := r.driver.Read(ctx, req)
			for _, entry := range page.Entries {
				r.tenure.has(entry.Place)
			}
			return page, err
		}
	})
	if err == nil && req.ID != "" {
		turn.Resume(page.Stored)
	}
	return page, err
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

func (s *Store[M, D]) matches(e Exchange[M], words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(e.Messages, func(m M) bool { return contains(s.codec.Text(m), words) })
}
