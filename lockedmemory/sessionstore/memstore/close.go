package memstore

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Close implements storedriver.Driver.
func (s *sessions) Close(_ context.Context, c storedriver.CloseRequest) (v storedriver.Verdict, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.at(c.Session)
	v.Outcome, v.Mark = sess.fate(c.By), sess.mark
	if v.Outcome != storedriver.Done || c.Below > 0 && v.Mark.Fence >= c.Below {
		return v, nil
	}
	by, until := sess.ids[c.By], time.Now().Add(s.keep.RememberIDs)
	if c.Below == 0 && !by.arrived && c.By != "" {
		by = record{until: until, arrived: true}
		sess.ids[c.By], sess.newest = by, c.By
	}
	newest := sess.fate(sess.newest)
	if c.Below > 0 && by.arrived && sess.newest != c.By && (newest == storedriver.Done || newest == storedriver.Known) {
		v.Outcome = storedriver.Superseded
		sess.ids[c.By] = record{until: until, closed: v.Outcome}
		return v, nil
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
		v.Outcome = fate
	}
	return v, nil
}

// fate returns what became of an ID, by its hash: Known, Stopped, Superseded, or Done if it is open.
func (sess *session) fate(id string) storedriver.Outcome {
	known := sess.ids[id]
	if known.place.N > 0 {
		return storedriver.Known
	}
	return known.closed
}
