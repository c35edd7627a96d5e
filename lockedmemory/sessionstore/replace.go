package sessionstore

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Replace puts exchanges in the place of those at the places from to to, both included: to edit an
// exchange, to answer anew, to compact or to erase a part of the history. It is one step for readers. The
// exchanges get new places, with a Sub that no exchange there has had. So a place from before gives
// [ErrRange].
//
// Give an exchange the Place and the IDs of an exchange in the range to keep it in the turn of that exchange:
// [Store.Answered] finds it under each ID. The two are not compared. The Places must be in the order of the
// history. Two may be equal, but no two IDs. An exchange without a Place loses its IDs, and stands with the
// exchange after it, or at the end of the range.
//
// A Pinned exchange, such as a summary, is kept by Options.Window and [Retention], but not by IdleTTL. A
// Replace without it, Clear and Delete remove it. Pin few exchanges: a Load reads all of them.
//
// The service writes the history anew, and needs twice its memory until the end. Of the removed exchanges it
// then keeps no text.
//
// Further errors: [ErrRange], lockedmemory.ErrInvalidID, [ErrGone], [ErrFull], [ErrTooLarge], [ErrCodec].
// After distlock.ErrOutcomeUnknown, repeat it in the same turn: ErrRange then says that it is done.
func (s *Store[M, D]) Replace(ctx context.Context, from, to lockedmemory.Place,
	exchanges ...lockedmemory.Exchange[M]) error {
	r, err := s.request(ctx, opReplace)
	if err != nil {
		return err
	}
	switch {
	case !ofExchange(from) || !ofExchange(to):
		return fmt.Errorf("%w: nothing was written: from %+v to %+v: no exchange has such a Place: "+
			"give the Places of the first and the last exchange of the range", ErrRange, from, to)
	case from.Compare(to) > 0:
		return fmt.Errorf("%w: nothing was written: it begins at %s, above its end at %s: exchange the two Places",
			ErrRange, from, to)
	}
	entries, ids := make([]storedriver.Entry, len(exchanges)), make(map[string]bool)
	next := to
	for i := len(exchanges) - 1; i >= 0; i-- {
		e := exchanges[i]
		if e.Place == (lockedmemory.Place{}) {
			e.Place, e.ID, e.Also = next, "", nil
		}
		if !ofExchange(e.Place) || before(e.Place, from) || before(next, e.Place) {
			return fmt.Errorf("%w: nothing was written: the Place of exchange %d, %+v, is outside the range or out of order, "+
				"or no exchange can have it: give Places that were read", ErrRange, i+1, e.Place)
		}
		next = e.Place
		for n, id := range append([]string{e.ID}, e.Also...) {
			if n == 0 && id == "" && len(e.Also) == 0 {
				continue
			}
			if err := validID(opReplace, id); err != nil {
				return err
			}
			if ids[id] {
				return fmt.Errorf("sessionstore: %s: %w: exchange %d has an ID twice, or that of a later one; nothing was written: "+
					"give the ID to one exchange alone", opReplace, lockedmemory.ErrInvalidID, i+1)
			}
			ids[id] = true
		}
		entries[i] = storedriver.Entry{Place: next, ID: e.ID, Also: e.Also, Pinned: e.Pinned}
		if entries[i].Messages, err = s.encode(e.Messages); err != nil {
			return err
		}
	}
	return r.underLease(func(w storedriver.Write) (storedriver.Verdict, error) {
		return r.driver.Replace(ctx, storedriver.Replace{Write: w, From: from, To: to, New: entries})
	})
}

// isPlace reports whether an entry may have a place. ⚑ In Redis, the other values have no form, or that of
// another place.
func isPlace(p lockedmemory.Place) bool {
	return p.Fence >= 0 && p.N >= 0 && p.N < math.MaxInt64/(lockedmemory.MaxSub+1) && p.Sub >= 0 && p.Sub <= lockedmemory.MaxSub
}

// ofExchange reports whether an exchange may have a place. A marker has n = 0.
func ofExchange(p lockedmemory.Place) bool { return isPlace(p) && p.N > 0 }

// before compares places without their sub-places.
func before(a, b lockedmemory.Place) bool {
	return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.N, b.N)) < 0
}
