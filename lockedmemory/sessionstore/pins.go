package sessionstore

import (
	"slices"

	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// pins returns the pinned entries, in order. It follows the first page, and makes no request where that has
// named none. An error becomes reading.err.
func (r *reading) pins() []storedriver.Entry {
	if len(r.pinned) == 0 || r.err != nil {
		return nil
	}
	page, err := r.read(storedriver.Read{Pinned: r.pinned, PinnedOnly: true, Next: true, Limit: len(r.pinned)})
	if err == nil {
		err = r.changed(page)
	}
	// ⚑ A Clear and a Replace may lead to the same revision. But a session may also have expired.
	if err == nil && len(page.Entries) < len(r.pinned) && r.last != (lockedmemory.Place{}) {
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
