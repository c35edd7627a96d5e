package sessionstore

import (
	"fmt"
	"math"
	"slices"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// maxPinned is how many pinned exchanges a session has at most: a Load reads all of them.
const maxPinned = 16

// end is above all places.
var end = lockedmemory.Place{Fence: math.MaxInt64}

// notPinned returns the entries that limits apply to.
func notPinned(entries []storedriver.Entry) []storedriver.Entry {
	return slices.DeleteFunc(entries, func(e storedriver.Entry) bool { return e.Pinned })
}

// pins returns the pinned entries between two places, in order. It follows the first page, and makes no
// request where that has named none. An error becomes reading.err.
func (r *reading) pins(above, below lockedmemory.Place) []storedriver.Entry {
	var places []lockedmemory.Place
	for _, p := range r.pinned {
		if p.Compare(above) > 0 && p.Compare(below) < 0 {
			places = append(places, p)
		}
	}
	if len(places) == 0 || r.err != nil {
		return nil
	}
	page, err := r.read(storedriver.Read{Pinned: places, PinnedOnly: true, Next: true, Limit: len(places)})
	if err == nil {
		err = r.changed(page)
	}
	// ⚑ A Clear and a Replace may lead to the same revision. But a session may also have expired.
	if err == nil && len(page.Entries) < len(places) && r.last != (lockedmemory.Place{}) {
		err = r.changes()
	}
	r.err = err
	return page.Entries
}

// byPlace sorts exchanges.
func byPlace[M any](found []lockedmemory.Exchange[M]) []lockedmemory.Exchange[M] {
	slices.SortFunc(found, func(a, b lockedmemory.Exchange[M]) int { return a.Place.Compare(b.Place) })
	return found
}

// checkPins refuses a Replace that would leave more than maxPinned pinned exchanges.
// ⚑ It reads without the lease. A read under it would hide that a later lease has overtaken it.
func (r *request) checkPins(replace storedriver.Replace) error {
	pinned := len(replace.New) - len(notPinned(slices.Clone(replace.New)))
	if pinned == 0 {
		return nil
	}
	reader := &request{ctx: r.ctx, op: opPins, driver: r.driver, session: r.session}
	page, err := reader.read(storedriver.Read{Backward: true, Limit: 1})
	for _, p := range page.Pinned {
		if p.Compare(replace.From) < 0 || p.Compare(replace.To) > 0 {
			pinned++
		}
	}
	if err == nil && pinned > maxPinned {
		err = fmt.Errorf("%w: %s: nothing was written: the session would have %d pinned exchanges, at most %d are allowed: "+
			"replace several of them by one", ErrTooLarge, opReplace, pinned, maxPinned)
	}
	return err
}
