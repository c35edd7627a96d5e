package memstore

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// New makes a store with sessions of its own. Give it the KeyFunc that the lock has. It returns
// distlock.ErrInvalidOption for a nil key or codec, and for a retention or options out of range.
// Retention.Namespace has no effect.
func New[M, D any](key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D], keep *sessionstore.Retention,
	opts *sessionstore.Options) (*sessionstore.Store[M, D], error) {
	d, err := NewDriver(keep)
	if err != nil {
		return nil, err
	}
	return sessionstore.New(d, key, codec, opts)
}

// NewDriver makes a driver, which several stores may share. It returns distlock.ErrInvalidOption for a
// retention out of range.
func NewDriver(keep *storedriver.Retention) (storedriver.Driver, error) {
	kept, err := keep.WithDefaults()
	if err != nil {
		return nil, err
	}
	return &sessions{keep: kept, sessions: make(map[string]*session)}, nil
}

// sessions is a storedriver.Driver.
type sessions struct {
	keep storedriver.Retention

	mu       sync.Mutex
	sessions map[string]*session
	swept    time.Time
}

type session struct {
	// mark is the highest place that the session has seen, and op the write that has taken it.
	// Zero: none was seen, or the mark has expired.
	mark    lockedmemory.Place
	op      string
	state   state
	deleted int64 // the token of the last Delete
	stopped int64 // the token of the last stop
	entries []entry
	// revision is at least the highest sub-place given out. It changes with each Replace, Fork and Clear.
	revision int64
	ids      map[string]record // by their hashes
	newest   string            // the message that has arrived last, by its hash
	inbox    []item            // by arrival
	used     time.Time
}

// state says what has happened under the token of a mark.
type state int

const (
	empty   state = iota // the session had no exchange when the token was shown
	cleared              // Clear has taken the mark
	begun                // the session had an exchange when the token was shown, or has been given one since
)

type entry struct {
	storedriver.Entry
	op string
}

// record is what remains known of an ID. Its place is zero if no exchange was stored under the ID.
type record struct {
	digest  [16]byte
	place   lockedmemory.Place
	until   time.Time
	closed  storedriver.Outcome // Stopped, Superseded, or Done if the ID is not closed
	arrived bool
}

func (s *sessions) Retention() storedriver.Retention { return s.keep }

// Ping has nothing to ask.
func (s *sessions) Ping(context.Context) ([]string, error) { return nil, nil }

// AcrossProcesses is false: no other process sees the sessions.
func (s *sessions) AcrossProcesses() bool { return false }

// at returns a session as it is now. Once an hour, it removes the sessions of which nothing is left.
func (s *sessions) at(name string) *session {
	if time.Since(s.swept) > time.Hour {
		maps.DeleteFunc(s.sessions, func(_ string, sess *session) bool { return s.expire(sess) })
		s.swept = time.Now()
	}
	sess := s.sessions[name]
	if sess == nil {
		sess = &session{ids: make(map[string]record)}
		s.sessions[name] = sess
	}
	s.expire(sess)
	return sess
}

// expire removes what has expired, and reports whether nothing is left.
func (s *sessions) expire(sess *session) bool {
	idle, keep := time.Since(sess.used), storedriver.KeepEmpty
	if s.keep.IdleTTL > 0 && idle >= s.keep.IdleTTL {
		sess.entries = nil
	}
	if sess.state == begun {
		keep += s.keep.IdleTTL
	}
	if sess.entries == nil && idle >= keep {
		sess.mark, sess.op, sess.state, sess.deleted, sess.stopped = lockedmemory.Place{}, "", empty, 0, 0
	}
	maps.DeleteFunc(sess.ids, func(_ string, known record) bool { return time.Until(known.until) <= 0 })
	sess.inbox = slices.DeleteFunc(sess.inbox, func(i item) bool {
		return time.Since(i.arrived) >= storedriver.InboxLife || sess.fate(storedriver.HashID(i.ID)) != storedriver.Done
	})
	return sess.mark == lockedmemory.Place{} && len(sess.ids) == 0 && len(sess.inbox) == 0
}

// barred refuses a lease that waited through a stop or a Delete, or that was overtaken, or that is too old
// for an unknown session.
func (sess *session) barred(a storedriver.Access) storedriver.Verdict {
	switch {
	case a.Since > 0 && a.Since < sess.stopped:
		return storedriver.Verdict{Outcome: storedriver.Ended}
	case a.AcceptedFence > 0 && a.AcceptedFence < sess.mark.Fence && sess.mark.Fence < a.Fence:
		return storedriver.Verdict{Outcome: storedriver.Stale, Mark: sess.mark}
	case a.Awaited > 0 && a.Awaited < sess.deleted && sess.deleted < a.Fence:
		return storedriver.Verdict{Outcome: storedriver.Deleted}
	case sess.entries == nil && sess.mark == lockedmemory.Place{} &&
		a.Fence < time.Now().Add(-storedriver.OldToken).UnixMicro():
		return storedriver.Verdict{Outcome: storedriver.Unowned}
	}
	return storedriver.Verdict{}
}

// raise raises the session to a token, or refuses it. The first access under a lease trims.
func (s *sessions) raise(sess *session, a storedriver.Access) storedriver.Verdict {
	if a.Fence < sess.mark.Fence {
		return storedriver.Verdict{Outcome: storedriver.Stale, Mark: sess.mark}
	}
	sess.show(a.Fence)
	sess.used = time.Now()
	if a.FirstAccess {
		sess.trim(s.keep, a.Fence)
	}
	return storedriver.Verdict{}
}

// first shows the token of a read, if it is a first access, or refuses it.
func (s *sessions) first(sess *session, a storedriver.Access) (v storedriver.Verdict) {
	if a.FirstAccess {
		if v = sess.barred(a); v.Outcome == storedriver.Done {
			v = s.raise(sess, a)
		}
	}
	return v
}

// show raises the mark to a token.
func (sess *session) show(fence int64) {
	if fence <= sess.mark.Fence {
		return
	}
	sess.mark, sess.op, sess.state, sess.used = lockedmemory.Place{Fence: fence}, "", empty, time.Now()
	if sess.entries != nil {
		sess.state = begun
	}
}

// trim removes the oldest turns until the limits of keep hold. It never removes a part of a turn, nor
// the newest turn, nor a pinned exchange. now is the token of the access.
func (sess *session) trim(keep storedriver.Retention, now int64) {
	trimmable := slices.DeleteFunc(slices.Clone(sess.entries), func(e entry) bool { return e.Pinned })
	excess := 0
	if keep.MaxExchanges > 0 {
		excess = max(0, len(trimmable)-keep.MaxExchanges)
	}
	for excess < len(trimmable) && trimmable[excess].Place.Fence < keep.Since(now) {
		excess++
	}
	if excess == 0 {
		return
	}
	last, newest := trimmable[excess-1].Place.Fence, trimmable[len(trimmable)-1].Place.Fence
	sess.entries = slices.DeleteFunc(sess.entries, func(e entry) bool {
		return !e.Pinned && e.Place.Fence <= last && e.Place.Fence < newest
	})
}

// gone reports whether exchanges that the lease of an access has seen have disappeared, and no
// Clear says why.
func (sess *session) gone(a storedriver.Access) bool {
	explained := sess.state == cleared && sess.mark.Compare(a.HistoryUpTo) > 0
	// ⚑ Another store may share the lease: it has seen what this one has not.
	hadHistory := a.HistoryUpTo != lockedmemory.Place{} || sess.state == begun && a.Fence == sess.mark.Fence
	return hadHistory && sess.entries == nil && a.Fence >= sess.mark.Fence && !explained
}

// take takes the place of a write, or refuses it. isCopy says that an earlier copy of it took effect.
func (s *sessions) take(sess *session, w storedriver.Write) (v storedriver.Verdict, isCopy bool) {
	at := lockedmemory.Place{Fence: w.Fence, N: w.N}
	same := func(e entry) bool { return e.Place == at && e.op == w.Op }
	if sess.mark == at && sess.op == w.Op || sess.mark.Compare(at) >= 0 && slices.ContainsFunc(sess.entries, same) {
		return v, true
	}
	if v = s.raise(sess, w.Access); v.Outcome != storedriver.Done {
		return v, false
	}
	if sess.mark.N >= w.N {
		return storedriver.Verdict{Outcome: storedriver.Taken}, false
	}
	sess.mark, sess.op = at, w.Op
	return v, false
}

// Append implements storedriver.Driver. A decided question leaves the inbox with the next call, see expire.
func (s *sessions) Append(_ context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(a.Session)
	if v := sess.barred(a.Access); v.Outcome != storedriver.Done {
		return v, nil
	}
	known, fate := 0, storedriver.Done
	for _, id := range a.IDs {
		hash := storedriver.HashID(id)
		if of := sess.fate(hash); of != storedriver.Done {
			fate = of
		}
		if sess.ids[hash].place.N > 0 && sess.ids[hash].digest == a.Digest {
			known++
		}
	}
	switch {
	case fate == storedriver.Done && sess.gone(a.Access):
		return storedriver.Verdict{Outcome: storedriver.Gone}, nil
	case fate == storedriver.Done:
	case known == len(a.IDs), len(a.IDs) == 1 && fate != storedriver.Known:
		s.raise(sess, a.Access) // refused or not: the IDs are decided
		return storedriver.Verdict{Outcome: fate}, nil
	default:
		return storedriver.Verdict{Outcome: storedriver.Conflict}, nil
	}
	v, isCopy := s.take(sess, a.Write)
	if v.Outcome != storedriver.Done {
		return v, nil
	}
	place, until := lockedmemory.Place{Fence: a.Fence, N: a.N}, time.Now().Add(s.keep.RememberIDs)
	for _, id := range a.IDs {
		sess.ids[storedriver.HashID(id)] = record{digest: a.Digest, place: place, until: until}
	}
	for _, id := range a.Superseded {
		if hash := storedriver.HashID(id); sess.fate(hash) == storedriver.Done {
			sess.ids[hash] = record{until: until, closed: storedriver.Superseded}
		}
	}
	if !isCopy {
		e := storedriver.Entry{Place: place, Messages: cloned(a.Messages)}
		if len(a.IDs) > 0 {
			e.ID, e.Also = a.IDs[0], slices.Clone(a.IDs[1:])
		}
		sess.state = begun
		sess.entries = append(sess.entries, entry{e, a.Op})
	}
	return v, nil
}

func (s *sessions) Replace(_ context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return s.change(r.Write, true, func(sess *session) storedriver.Outcome {
		first, last := sess.index(r.From), sess.index(r.To)
		switch {
		case first < 0 || last < 0:
			return storedriver.Range
		case !sess.replace(first, last, r.New):
			return storedriver.Full
		}
		return storedriver.Done
	})
}

func (s *sessions) Clear(_ context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	return s.change(c.Write, false, func(sess *session) storedriver.Outcome {
		sess.entries, sess.revision = nil, (sess.revision+1)%(lockedmemory.MaxSub/2) // half are free then
		if c.Forget {
			clear(sess.ids)
			sess.newest, sess.deleted, sess.inbox = "", c.Fence, nil
		}
		return storedriver.Done
	})
}

func (s *sessions) Fork(_ context.Context, f storedriver.Fork) (storedriver.Verdict, error) {
	return s.change(f.Write, false, func(sess *session) storedriver.Outcome {
		if sess.entries != nil {
			return storedriver.NotEmpty
		}
		sess.revision++
		for _, e := range f.New {
			e.Messages = cloned(e.Messages)
			sess.entries = append(sess.entries, entry{Entry: e})
			sess.revision = max(sess.revision, e.Place.Sub)
		}
		return storedriver.Done
	})
}

// change takes the place of a write, and makes it. With ofHistory, the history must not be gone.
func (s *sessions) change(w storedriver.Write, ofHistory bool, apply func(*session) storedriver.Outcome,
) (storedriver.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(w.Session)
	if v := sess.barred(w.Access); v.Outcome != storedriver.Done {
		return v, nil
	}
	if ofHistory && sess.gone(w.Access) {
		return storedriver.Verdict{Outcome: storedriver.Gone}, nil
	}
	v, isCopy := s.take(sess, w)
	if v.Outcome != storedriver.Done || isCopy {
		return v, nil
	}
	v.Outcome = apply(sess)
	switch {
	case v.Outcome != storedriver.Done:
		sess.op = "" // the place stays taken
	case len(sess.entries) == 0:
		sess.entries, sess.state = nil, cleared
	default:
		sess.state = begun
	}
	return v, nil
}

// index returns where the entry at a place is, or -1.
func (sess *session) index(place lockedmemory.Place) int {
	return slices.IndexFunc(sess.entries, func(e entry) bool { return e.Place == place })
}

// replace puts other entries in the place of those from first to last. Each has a new sub-place, and so
// has each entry that the new ones have overtaken. Without enough sub-places, replace changes nothing.
func (sess *session) replace(first, last int, with []storedriver.Entry) bool {
	revision := sess.revision
	all := slices.Clone(sess.entries[:first])
	for _, e := range with {
		revision++
		e.Place.Sub, e.Messages = revision, cloned(e.Messages)
		all = append(all, entry{Entry: e})
	}
	for _, e := range sess.entries[last+1:] {
		if len(all) > 0 && e.Place.Compare(all[len(all)-1].Place) < 0 {
			revision++
			e.Place.Sub = revision
		}
		all = append(all, e)
	}
	if revision > lockedmemory.MaxSub {
		return false
	}
	sess.entries, sess.revision = all, max(revision, sess.revision+1)
	return true
}

func (s *sessions) Read(_ context.Context, r storedriver.Read) (storedriver.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(r.Session)
	var page storedriver.Page
	if page.Verdict = s.first(sess, r.Access); page.Outcome != storedriver.Done {
		return page, nil
	}
	known, fate := sess.ids[storedriver.HashID(r.ID)], sess.fate(storedriver.HashID(r.ID))
	if page.Mark, page.Known = sess.mark, fate == storedriver.Known; !page.Known {
		page.Outcome = fate
	}
	page.Revision, page.Oldest = sess.revision, lockedmemory.Place{Fence: math.MaxInt64}
	for _, e := range slices.Backward(sess.entries) {
		if e.Pinned {
			page.Pinned = append(page.Pinned, e.Place)
		} else {
			page.Oldest = e.Place
		}
	}
	slices.Reverse(page.Pinned)
	entries, ahead := slices.All(sess.entries), 1
	if r.Backward {
		entries, ahead = slices.Backward(sess.entries), -1
	}
	for _, e := range entries {
		switch {
		case r.From != lockedmemory.Place{} && e.Place.Compare(r.From) != ahead,
			r.PinnedOnly && !slices.Contains(r.Pinned, e.Place),
			r.ID != "" && (e.ID != r.ID && !slices.Contains(e.Also, r.ID) || e.Place.Fence != known.place.Fence || e.Place.N != known.place.N):
			continue
		case len(page.Entries) == r.Limit && !r.PinnedOnly: // and there is more
			page.Last = page.Entries[r.Limit-1].Place
			return page, nil
		}
		e.Messages = cloned(e.Messages)
		page.Entries = append(page.Entries, e.Entry)
	}
	return page, nil
}

// Sessions returns all names in one page.
func (s *sessions) Sessions(context.Context, string) (names []string, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, sess := range s.sessions {
		if s.expire(sess); sess.entries != nil {
			names = append(names, name)
		}
	}
	return names, "", nil
}

func cloned(messages [][]byte) [][]byte {
	all := make([][]byte, len(messages))
	for i, m := range messages {
		all[i] = slices.Clone(m)
	}
	return all
}
