package memstore

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// New makes a store. Give it the KeyFunc that the lock has. A nil key or codec, and options out of range, are refused with
// distlock.ErrInvalidOption. Options.Namespace has no effect.
func New[M, D any](key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D], opts *sessionstore.Options) (*sessionstore.Store[M, D], error) {
	return sessionstore.New(func(s driver.Settings) (driver.Driver, error) { return NewDriver(s), nil }, key, codec, opts)
}

// NewDriver makes a driver, which several stores may share.
func NewDriver(s driver.Settings) driver.Driver {
	return &service{settings: s, sessions: make(map[string]*session)}
}

// service is a driver.Driver.
type service struct {
	settings driver.Settings

	mu       sync.Mutex
	sessions map[string]*session
	known    int // turn IDs of all sessions
	calls    int // since the last sweep
}

type session struct {
	top     driver.Place
	op      string // what has taken it
	entries []entry
	turns   map[string]turn // by ID
	used    time.Time
}

type entry struct {
	driver.Entry
	op string
}

type turn struct {
	digest string
	until  time.Time
}

// at returns a session as it is now.
func (s *service) at(name string, now time.Time) *session {
	if s.calls++; s.calls > len(s.sessions)+s.known+100 {
		s.sweep(now)
	}
	each := s.sessions[name]
	if each == nil {
		each = &session{turns: make(map[string]turn), used: now}
		s.sessions[name] = each
	}
	s.expire(each, now)
	return each
}

func (s *service) expire(each *session, now time.Time) {
	if s.settings.IdleTTL > 0 && now.Sub(each.used) >= s.settings.IdleTTL {
		each.entries = nil
	}
}

// sweep forgets what nobody has asked for since it expired. It comes after as many calls as there is to look at.
func (s *service) sweep(now time.Time) {
	s.calls = 0
	for name, each := range s.sessions {
		s.expire(each, now)
		for id, t := range each.turns {
			if !now.Before(t.until) {
				delete(each.turns, id)
				s.known--
			}
		}
		if each.entries == nil && len(each.turns) == 0 && now.Sub(each.used) > s.settings.IdleTTL+driver.KeepEmpty {
			delete(s.sessions, name)
		}
	}
}

// show raises the session to a token, or refuses it.
func (each *session) show(fence int64, now time.Time) driver.Verdict {
	if fence < each.top.Fence {
		return driver.Verdict{Outcome: driver.Stale, Mark: each.top}
	}
	if fence > each.top.Fence {
		each.top = driver.Place{Fence: fence}
	}
	each.used = now
	return driver.Verdict{}
}

// take takes the place of a write, or refuses it. had says that an earlier copy of the write has taken it.
func (each *session) take(w driver.Write, now time.Time) (v driver.Verdict, had bool) {
	at := driver.Place{Fence: w.Fence, N: w.N}
	if each.top == at && each.op == w.Op || slices.ContainsFunc(each.entries, func(e entry) bool { return e.Place == at && e.op == w.Op }) {
		return v, true
	}
	if v := each.show(w.Fence, now); v.Outcome != driver.Done {
		return v, false
	}
	if each.top.N >= w.N {
		return driver.Verdict{Outcome: driver.Taken, Mark: each.top}, false
	}
	each.top, each.op = at, w.Op
	return v, false
}

func (s *service) Append(_ context.Context, a driver.Append) (driver.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	each := s.at(a.Session, now)
	if known, ok := each.turns[a.ID]; ok && now.Before(known.until) {
		if known.digest != a.Digest {
			return driver.Verdict{Outcome: driver.Conflict}, nil
		}
		each.show(a.Fence, now) // refused or not: what was to be stored has been
		return driver.Verdict{Outcome: driver.Known}, nil
	}
	v, had := each.take(a.Write, now)
	if v.Outcome != driver.Done || had {
		return v, nil
	}
	each.entries = append(each.entries, entry{
		driver.Entry{Place: each.top, ID: a.ID, Number: a.Number, Messages: cloned(a.Messages)}, a.Op})
	if most := s.settings.MaxExchanges; most > 0 && len(each.entries) > most {
		each.entries = slices.Delete(each.entries, 0, len(each.entries)-most)
	}
	if a.ID != "" {
		if _, late := each.turns[a.ID]; !late {
			s.known++
		}
		each.turns[a.ID] = turn{a.Digest, now.Add(s.settings.Remember)}
	}
	return v, nil
}

func (s *service) Clear(_ context.Context, w driver.Write) (driver.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	each := s.at(w.Session, now)
	v, had := each.take(w, now)
	if v.Outcome == driver.Done && !had {
		each.entries = nil
	}
	return v, nil
}

func (s *service) Read(_ context.Context, r driver.Read) (driver.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var page driver.Page
	if r.Access == nil && s.sessions[r.Session] == nil { // who only reads leaves nothing
		page.Oldest = driver.Place{Fence: math.MaxInt64}
		return page, nil
	}
	each := s.at(r.Session, now)
	if r.Access != nil {
		if page.Verdict = each.show(r.Access.Fence, now); page.Outcome != driver.Done {
			return page, nil
		}
	}
	page.Oldest = each.top
	page.Oldest.N++ // beyond all
	if len(each.entries) > 0 {
		page.Oldest = each.entries[0].Place
	}
	from, to := 0, len(each.entries)
	byPlace := func(e entry, p driver.Place) int { return e.Place.Compare(p) }
	if r.After != (driver.Place{}) {
		from, _ = slices.BinarySearchFunc(each.entries, r.After, byPlace)
		if from < len(each.entries) && each.entries[from].Place == r.After {
			from++
		}
	}
	if r.Before != (driver.Place{}) {
		to, _ = slices.BinarySearchFunc(each.entries, r.Before, byPlace)
	}
	found := each.entries[min(from, to):to]
	more := len(found) > r.Limit
	if more && r.Backward {
		found = found[len(found)-r.Limit:]
	} else if more {
		found = found[:r.Limit]
	}
	for _, e := range found {
		e.Messages = cloned(e.Messages)
		page.Entries = append(page.Entries, e.Entry)
	}
	if r.Backward {
		slices.Reverse(page.Entries)
	}
	if more {
		page.Last = page.Entries[len(page.Entries)-1].Place
	}
	return page, nil
}

func cloned(messages [][]byte) [][]byte {
	all := make([][]byte, len(messages))
	for i, m := range messages {
		all[i] = slices.Clone(m)
	}
	return all
}
