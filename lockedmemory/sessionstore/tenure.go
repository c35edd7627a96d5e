package sessionstore

import (
	"context"
	"sync"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// tenures are what a store knows of the leases that its calls run under.
type tenures struct {
	mu      sync.Mutex
	byLease map[*distlock.Lease]*tenure
}

// tenure is the state of a store under a lease.
type tenure struct {
	places *places

	mu       sync.Mutex
	fence    int64
	known    bool         // the store has been shown the token
	accepted bool         // the service has accepted this token or an earlier one
	need     driver.Place // see driver.Access
}

// places counts the writes under a lease. ⚑ The stores of a process share the count: with a count
// each, a late Save of one store would stand above a Clear of another.
type places struct {
	mu sync.Mutex
	n  int64 // the last place that was given out
}

var placesByLease sync.Map // of *places, by *distlock.Lease

// of returns the tenure of a lease, which is removed when the lease ends. ⚑ A lease that has
// ended counts as one that has read everything: its turn may have.
func (ts *tenures) of(lease *distlock.Lease) *tenure {
	if lease.Context().Err() != nil { // the call has outlived its turn: the service decides
		return &tenure{places: &places{}, need: driver.Place{Fence: lease.Fence()}}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if known := ts.byLease[lease]; known != nil {
		return known
	}
	if ts.byLease == nil {
		ts.byLease = make(map[*distlock.Lease]*tenure)
	}
	shared, _ := placesByLease.LoadOrStore(lease, &places{})
	t := &tenure{places: shared.(*places)}
	ts.byLease[lease] = t
	context.AfterFunc(lease.Context(), func() {
		placesByLease.Delete(lease)
		ts.mu.Lock()
		defer ts.mu.Unlock()
		delete(ts.byLease, lease)
	})
	return t
}

// next returns a new place. The place is used up whatever the outcome of the write: a late copy of the
// write must not meet another write there.
func (p *places) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return p.n
}

// skip notes that places up to n are taken.
func (p *places) skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n = max(p.n, n)
}

// access adds the token of the lease, and the state under it, to the access of a call. accepted
// reports whether the service has accepted a token of the lease before.
func (t *tenure) access(a driver.Access) (_ driver.Access, accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.Fence = a.Lease.Fence()
	if t.fence < a.Fence { // the lease's token may have risen
		t.fence, t.known = a.Fence, false
	}
	a.First, a.Need = !t.known, t.need
	return a, t.accepted
}

// shown notes that the service has accepted a token.
func (t *tenure) shown(fence int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.accepted = t.known || t.fence == fence, true
}

// has notes that the lease has read or stored an exchange at a place.
func (t *tenure) has(p driver.Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Compare(t.need) > 0 {
		t.need = p
	}
}
