package memstore

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver.
func (s *sessions) Close(_ context.Context, c storedriver.CloseRequest) (storedriver.CloseReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(c.Session)
	reply := storedriver.CloseReply{Outcome: sess.fate(c.By), Mark: sess.mark.Fence}
	if reply.Outcome != storedriver.Done || c.Below > 0 && reply.Mark >= c.Below {
		return reply, nil
	}
	by, until := sess.ids[c.By], time.Now().Add(s.keep.RememberIDs)
	if c.Below == 0 && !by.arrived && c.By != "" {
		by = record{until: until, arrived: true}
		sess.ids[c.By], sess.newest = by, c.By
	}
	newest := sess.fate(sess.newest)
	if c.Below > 0 && by.arrived && sess.newest != c.By && (newest == storedriver.Done || newest == storedriver.Known) {
		reply.Outcome = storedriver.Superseded
		sess.ids[c.By] = record{until: until, closed: reply.Outcome}
		return reply, nil
	}
	sess.show(c.Mark)
	sess.stopped = max(sess.stopped, c.Stop)
	fate := sess.fate(c.ID)
	if c.ID != "" && fate == storedriver.Done {
		fate = storedriver.Stopped
		if c.Below > 0 {
			fate = storedriver.Superseded
		}
		sess.ids[c.ID] = record{until: until, closed: fate}
	}
	if c.Below == 0 {
		reply.Outcome = fate
	}
	return reply, nil
}

// fate returns what became of an ID, by its hash: Known, Stopped, Superseded, or Done if it is open.
func (sess *session) fate(id string) storedriver.Outcome {
	known := sess.ids[id]
	if known.place.N > 0 {
		return storedriver.Known
	}
	return known.closed
}
