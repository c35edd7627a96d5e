package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// item is a question in the inbox.
type item struct {
	storedriver.Item
	arrived time.Time
}

// Put implements storedriver.Driver.
func (s *sessions) Put(_ context.Context, p storedriver.Put) (v storedriver.Verdict, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(p.Session)
	size := len(p.ID) + len(p.Question)
	for _, i := range sess.inbox {
		size += len(i.ID) + len(i.Question)
	}
	v.Outcome = sess.fate(storedriver.HashID(p.ID))
	switch isPending := slices.ContainsFunc(sess.inbox, func(i item) bool { return i.ID == p.ID }); {
	case p.Deleted != sess.deleted:
		v.Outcome, v.Mark.Fence = storedriver.Deleted, sess.deleted
	case v.Outcome != storedriver.Done || isPending:
	case len(sess.inbox) >= storedriver.InboxMax || size > storedriver.InboxBytes && len(sess.inbox) > 0:
		v.Outcome = storedriver.Full
	default:
		sess.inbox = append(sess.inbox, item{storedriver.Item{ID: p.ID, Question: slices.Clone(p.Question)}, time.Now()})
	}
	return v, nil
}

// Pending implements storedriver.Driver.
func (s *sessions) Pending(_ context.Context, a storedriver.Access) (v storedriver.Verdict, items []storedriver.Item, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(a.Session)
	if v = s.first(sess, a); v.Outcome != storedriver.Done {
		return v, nil, nil
	}
	now := time.Now()
	for _, i := range sess.inbox {
		i.Question, i.Age = slices.Clone(i.Question), now.Sub(i.arrived)
		items = append(items, i.Item)
	}
	return v, items, nil
}

// Inboxes returns all names in one page.
func (s *sessions) Inboxes(context.Context, string) (names []string, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, sess := range s.sessions {
		if s.expire(sess); len(sess.inbox) > 0 {
			names = append(names, name)
		}
	}
	return names, "", nil
}
