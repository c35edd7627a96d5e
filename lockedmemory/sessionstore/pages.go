package sessionstore

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

const (
	maxReply  = 16 << 20 // of a page, in bytes, if exchanges are of the estimated size
	firstSize = 1 << 20  // of an exchange, as estimated
	leastSize = 8 << 10  // so at most 2,048 entries a page
)

// unlimited is the limit of a read without a limit.
const unlimited = math.MaxInt

// pageReader is a request that reads a history page by page.
type pageReader struct {
	*request
	minFence int64                // the lowest token that Retention.MaxAge keeps, once a page was read
	size     int                  // of an exchange, as estimated; see pages
	paged    bool                 // a page was read
	revision int64                // of the first page
	lastRead lockedmemory.Place   // of the last entry read
	oldest   lockedmemory.Place   // see storedriver.Page, of the last page
	pinned   []lockedmemory.Place // see storedriver.Page, of the first page
	err      error                // has ended the pages
}

func (s *Store[M, D]) pageReader(ctx context.Context, op operation) (*pageReader, error) {
	request, err := s.request(ctx, op)
	return &pageReader{request: request, size: firstSize}, err
}

// pages yields the entries of a session, a page at a time, until pageReader.err is set. Each page has
// as many entries as maxReply allows. Pages of small exchanges grow fourfold. limit bounds the
// entries of the first page.
func (r *pageReader) pages(req storedriver.Read, limit int) iter.Seq[[]storedriver.Entry] {
	return func(yield func([]storedriver.Entry) bool) {
		for r.err == nil {
			req.Next, req.Pinned = r.paged, r.pinned
			req.Limit = min(limit, max(maxReply/r.size, 1))
			page, err := r.readPage(req)
			if err != nil {
				r.err = err
				return
			}
			if !r.paged {
				r.noteFirst(page)
			}
			if r.err = r.changed(page, page.Changed); r.err != nil {
				return
			}
			r.size = max(r.size/4, leastSize)
			for _, entry := range page.Entries {
				size := len(entry.ID) + entry.Size
				for _, text := range entry.Messages {
					size += len(text)
				}
				r.size = max(r.size, size)
				if !entry.Pinned { // trimming does not remove it
					r.lastRead = entry.Place
				}
			}
			r.oldest = page.Oldest
			if !yield(page.Entries) || page.Last == (lockedmemory.Place{}) {
				return
			}
			req.From, limit = page.Last, unlimited
		}
	}
}

// noteFirst takes what the first page says of the session.
func (r *pageReader) noteFirst(page storedriver.Page) {
	r.paged, r.revision, r.pinned = true, page.Revision, page.Pinned
	r.minFence = r.driver.Retention().Since(page.Mark.Fence)
}

// changed returns an error if a page is not whole, or does not belong to the pages before: the history was
// replaced or cleared, or the last entry read was trimmed, perhaps with a part of its turn that was not read.
func (r *pageReader) changed(page storedriver.Page, torn bool) error {
	if torn || page.Revision != r.revision || r.lastRead != (lockedmemory.Place{}) && r.lastRead.Compare(page.Oldest) < 0 {
		return fmt.Errorf("%w: %s: while it was read, it was cleared, replaced or trimmed: begin again", ErrChanged, r.op)
	}
	return nil
}

// pins returns the pinned entries, in order. It follows the first page, and makes no request where that has
// named none. An error becomes pageReader.err.
func (r *pageReader) pins() []storedriver.Entry {
	if len(r.pinned) == 0 || r.err != nil {
		return nil
	}
	page, err := r.readPage(storedriver.Read{Pinned: r.pinned, PinnedOnly: true, Next: true, Limit: len(r.pinned)})
	if err == nil {
		// ⚑ The session may have expired: without a pinned exchange, the others are not the history.
		err = r.changed(page, len(page.Entries) < len(r.pinned) && r.lastRead != (lockedmemory.Place{}))
	}
	r.err = err
	return page.Entries
}

// readPage reads a page.
func (r *request) readPage(req storedriver.Read) (page storedriver.Page, err error) {
	err = r.read(func(a storedriver.Access) (v storedriver.Verdict, err error) {
		req.Access = a
		page, err = r.driver.Read(r.ctx, req)
		r.seen = page.Entries
		return page.Verdict, err
	})
	return page, err
}

// read makes a call that reads. Under a lease, it shows the token of the lease.
func (r *request) read(do func(storedriver.Access) (storedriver.Verdict, error)) error {
	if r.lease != nil {
		return r.underLease(func(w storedriver.Write) (storedriver.Verdict, error) { return do(w.Access) })
	}
	v, err := repeat(r.ctx, 0, func() (storedriver.Verdict, error) { return do(storedriver.Access{Session: r.session}) })
	if err == nil && v.Outcome != storedriver.Done {
		return r.refusalError(v.Outcome)
	}
	return r.callError(err)
}
