package sessionstore

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// leases are the states of a store under the leases of its calls.
type leases struct{ byLease sync.Map } // of *leaseState, by *distlock.Lease

// leaseState is the state of a store under one lease.
type leaseState struct {
	places *places

	mu       sync.Mutex
	fence    int64
	shown    bool         // the service has accepted this token
	accepted bool         // the service has accepted this token or an earlier one
	need     driver.Place // see driver.Access
}

// places counts the writes under a lease. ⚑ The stores of a process share the count: with a count
// each, a late Save of one store would stand above a Clear of another.
type places struct{ last atomic.Int64 }

var placesByLease sync.Map // of *places, by *distlock.Lease

// of returns the state under a lease, which is removed when the lease ends. ⚑ A lease that has ended
// counts as a lease that has read everything: its turn may have.
func (ls *leases) of(lease *distlock.Lease) *leaseState {
	if lease.Context().Err() != nil { // the call has outlived its turn: the service decides
		return &leaseState{places: &places{}, need: driver.Place{Fence: lease.Fence()}}
	}
	shared, _ := placesByLease.LoadOrStore(lease, &places{})
	state, known := ls.byLease.LoadOrStore(lease, &leaseState{places: shared.(*places)})
	if !known {
		context.AfterFunc(lease.Context(), func() {
			ls.byLease.Delete(lease)
			placesByLease.Delete(lease) // last: a call that stores places later also stores a state
		})
	}
	return state.(*leaseState)
}

// next returns a new place. The place is used up whatever the outcome of the write: a late copy of the
// write must not meet another write there.
func (p *places) next() int64 { return p.last.Add(1) }

// skip notes that places up to n are taken.
func (p *places) skip(n int64) {
	for last := p.last.Load(); last < n && !p.last.CompareAndSwap(last, n); {
		last = p.last.Load()
	}
}

// access returns the access of a call under a lease. accepted reports whether the service has
// accepted a token of the lease before.
func (s *leaseState) access(lease *distlock.Lease) (a driver.Access, accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fence := lease.Fence()
	if s.fence < fence { // the token of the lease may have risen
		s.fence, s.shown = fence, false
	}
	return driver.Access{Lease: lease, Fence: fence, First: !s.shown, Need: s.need}, s.accepted
}

// accept notes that the service has accepted a token.
func (s *leaseState) accept(fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.accepted = s.shown || s.fence == fence, true
}

// has notes that the lease has read or stored an exchange at a place.
func (s *leaseState) has(p driver.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Compare(s.need) > 0 {
		s.need = p
	}
}
