package sessionstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Fork copies the history of a session into another session, which has no exchange: to is what the
// KeyFunc would return for it. It copies the turns up to that of an exchange, whole, or with the zero
// Place all turns that reads show. The exchanges keep their Places and stay Pinned. IDs are not copied: a
// message that is repeated in the new session is answered anew. It writes under a lease of the new
// session, in one step. Further errors: [ErrNotEmpty], [ErrRange] and those of a read. After
// distlock.ErrOutcomeUnknown, repeat it: [ErrNotEmpty] then says that it was done.
func (s *Store[M, D]) Fork(ctx context.Context, to string, upTo lockedmemory.Place) error {
	lease, _ := lockedmemory.Lease(ctx)
	target, err := s.requestFor(ctx, opFork, to, lease)
	if err != nil {
		return err
	}
	entries, err := readWhole(ctx, s, opSource, func(r *pageReader) (copied []storedriver.Entry) {
		all := upTo == lockedmemory.Place{}
		found := all
	pages:
		for page := range r.pages(storedriver.Read{}, unlimited) {
			for i, e := range page {
				if !all && e.Place.Fence > upTo.Fence {
					break pages
				}
				found = found || e.Place == upTo
				if len(s.decode(r, page[i:i+1], nil)) > 0 { // it can be read
					copied = append(copied, storedriver.Entry{Place: e.Place, Messages: e.Messages, Pinned: e.Pinned})
				}
			}
		}
		copied = slices.DeleteFunc(copied, func(e storedriver.Entry) bool { return !e.Pinned && e.Place.Compare(r.oldest) < 0 })
		if !found || len(copied) == 0 {
			r.err = cmp.Or(r.err, fmt.Errorf("%w: %s: nothing was written: the history has no exchange at %s, or none at all: "+
				"read it again", ErrRange, opFork, upTo))
		}
		return copied
	})
	if err != nil {
		return err
	}
	// ⚑ The places of the copied exchanges are below those of all later writes.
	if last := entries[len(entries)-1].Place.Fence; lease.Fence() <= last {
		if err := target.raise(last); err != nil {
			return err
		}
	}
	return target.underLease(func(w storedriver.Write) (storedriver.Verdict, error) {
		return target.driver.Fork(ctx, storedriver.Fork{Write: w, New: entries})
	})
}
