package sessionstore

import (
	"context"
	"iter"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// reader reads pages of one session.
type reader struct {
	*request
	driver driver.Driver
	most   int          // Retention.MaxExchanges
	size   int          // of an exchange, as estimated; see page
	oldest driver.Place // see driver.Page, of the last page
}

const (
	maxReply  = 16 << 20 // of a page, in bytes, if exchanges are of the estimated size
	maxPage   = 2048     // entries
	firstSize = 1 << 20
)

func (s *Store[M, D]) reader(ctx context.Context, op operation) (*reader, error) {
	r, err := s.request(ctx, op)
	return &reader{request: r, driver: s.driver, most: s.driver.Retention().MaxExchanges, size: firstSize}, err
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
	r.oldest = page.Oldest
	return page, err
}

func (r *reader) read(req driver.Read) (driver.Page, error) {
	req.Session = r.session
	if r.lease == nil {
		page, err := call(r.ctx, func(ctx context.Context) (driver.Page, error) { return r.driver.Read(ctx, req) })
		return page, failed(r.ctx, r.op, err)
	}
	turn, _ := lockedmemory.TurnID(r.ctx)
	if turn != nil {
		if _, known := turn.Next(); !known {
			req.ID = turn.ID
		}
	}
	page, err := under(r.request, func(ctx context.Context, w driver.Write) (driver.Page, error) {
		req := req // a call may outlive the wait for its answer
		req.Access = &w.Access
		page, err := r.driver.Read(ctx, req)
		for _, entry := range page.Entries {
			r.state.has(entry.Place)
		}
		return page, err
	})
	if err == nil && req.ID != "" {
		turn.Resume(page.Stored)
	}
	return page, err
}

// turns yields the turns that Retention.MaxExchanges keeps, each whole, the newest first. first, if
// not 0, bounds the entries of the first page. An error ends the sequence.
func (r *reader) turns(first int) iter.Seq2[[]driver.Entry, error] {
	return func(yield func([]driver.Entry, error) bool) {
		var turn []driver.Entry // that is being read
		seen, newest := 0, true
		for req := (driver.Read{Backward: true}); ; first = 0 {
			ask := first
			if left := r.most + 1 - seen; r.most > 0 && left > 0 && (ask == 0 || left < ask) {
				ask = left // decides which turns are kept
			}
			page, err := r.page(req, ask)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, entry := range page.Entries {
				if turn != nil && entry.Place.Fence != turn[0].Place.Fence {
					if !yield(turn, nil) {
						return
					}
					turn, newest = nil, false
				}
				if seen++; r.most > 0 && seen > r.most && !newest {
					return
				}
				turn = append(turn, entry)
			}
			if req.Before = page.Last; req.Before == (driver.Place{}) {
				if turn != nil {
					yield(turn, nil)
				}
				return
			}
		}
	}
}

// beginning returns the place before the oldest exchange that Retention.MaxExchanges keeps.
func (r *reader) beginning() (before driver.Place, err error) {
	for turn, err := range r.turns(0) {
		if err != nil {
			return before, err
		}
		before = driver.Place{Fence: turn[0].Place.Fence}
	}
	return before, nil
}
