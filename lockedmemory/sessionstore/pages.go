package sessionstore

import (
	"iter"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

const (
	maxReply  = 16 << 20 // of a page, in bytes, if exchanges are of the estimated size
	maxPage   = 2048     // entries
	firstSize = 1 << 20
)

// all is the limit of a read without a limit.
const all = 1 << 40

// pages yields the entries of a session, a page at a time. Each page has as many entries as maxReply
// allows. Small exchanges double the size of each page. ask bounds the entries of the first page. An
// error ends the sequence.
func (r *request) pages(req driver.Read, ask int) iter.Seq2[[]driver.Entry, error] {
	return func(yield func([]driver.Entry, error) bool) {
		for ; ; ask = all {
			req.Limit = min(ask, max(maxReply/r.size, 1))
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
			if !yield(page.Entries, err) || err != nil || page.Last == (driver.Place{}) {
				return
			}
			if req.Backward {
				req.Before = page.Last
			} else {
				req.After = page.Last
			}
		}
	}
}

// turns yields the turns that Retention.MaxExchanges keeps, each whole, the newest first. The caller
// needs limit exchanges with all words. An error ends the sequence.
func (r *request) turns(limit int, words []string) iter.Seq2[[]driver.Entry, error] {
	return func(yield func([]driver.Entry, error) bool) {
		ask := r.most + 1 // one more shows whether the oldest turn is whole
		if len(words) == 0 {
			ask = min(ask, limit+1)
		}
		var turn []driver.Entry // that is being read
		seen, newest := 0, true
		for page, err := range r.pages(driver.Read{Backward: true}, ask) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, entry := range page {
				if turn != nil && entry.Place.Fence != turn[0].Place.Fence {
					if !yield(turn, nil) {
						return
					}
					turn, newest = nil, false
				}
				if seen++; seen > r.most && !newest {
					return
				}
				turn = append(turn, entry)
			}
		}
		if turn != nil {
			yield(turn, nil)
		}
	}
}

// beginning returns the place before the oldest exchange that Retention.MaxExchanges keeps.
func (r *request) beginning() (before driver.Place, err error) {
	if r.most == all {
		return before, nil
	}
	for turn, err := range r.turns(all, nil) {
		if err != nil {
			return before, err
		}
		before = driver.Place{Fence: turn[0].Place.Fence}
	}
	return before, nil
}

// read reads a page. Under a lease, it shows the token of the lease, and brings the highest number of
// the turn.
func (r *request) read(req driver.Read) (page driver.Page, err error) {
	req.Session = r.session
	if r.lease == nil {
		err = retry(r.ctx, 0, func() (err error) {
			page, err = r.driver.Read(r.ctx, req)
			return err
		})
		return page, r.failed(err)
	}
	turn, _ := lockedmemory.TurnID(r.ctx)
	if turn != nil {
		if _, known := turn.Next(); !known {
			req.ID = turn.ID
		}
	}
	page, err = r.under(func(w driver.Write) (driver.Page, error) {
		req.Access = &w.Access
		page, err := r.driver.Read(r.ctx, req)
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
