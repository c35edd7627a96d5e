package sessionstore

import (
	"sync"
	"sync/atomic"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// leaseState is the state of a store under one lease.
type leaseState struct {
	// places is the last place of a write under the lease. ⚑ The stores of a process share the count:
	// with a count each, a late Save of one store would stand above a Clear of another.
	places *atomic.Int64

	mu            sync.Mutex
	acceptedFence int64              // see storedriver.Access
	historyUpTo   lockedmemory.Place // see storedriver.Access
}

// placesKey is that of the places among the attachments of a lease.
type placesKey struct{}

// answerKey is that of the ID of an Answer among the attachments of the lease that it has taken.
type answerKey struct{}

// answerOf returns that ID, or a nil pointer.
func answerOf(lease *distlock.Lease) *atomic.Pointer[string] {
	return fencing.Attach(lease, answerKey{}, func() any { return new(atomic.Pointer[string]) }).(*atomic.Pointer[string])
}

// stateOf returns the state of a store under a lease. ⚑ A lease that has ended counts as a lease that
// has read everything: its turn may have.
func stateOf(store any, lease *distlock.Lease) *leaseState {
	if endOf(lease) != nil { // the call has outlived its turn: the service decides
		return &leaseState{places: new(atomic.Int64), historyUpTo: lockedmemory.Place{Fence: lease.Fence()}}
	}
	places := fencing.Attach(lease, placesKey{}, func() any { return new(atomic.Int64) })
	return fencing.Attach(lease, store, func() any { return &leaseState{places: places.(*atomic.Int64)} }).(*leaseState)
}

// endOf returns why a lease has ended, or nil. ⚑ The context of a lease that was asked ends before the lease.
func endOf(lease *distlock.Lease) error {
	if lease.Context().Err() == nil {
		return nil
	}
	return lease.Err()
}

// access returns the access of a call under a lease, whose token may have risen.
func (s *leaseState) access(lease *distlock.Lease) storedriver.Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	fence := lease.Fence()
	access := storedriver.Access{
		Session: lease.Key(), Lease: lease, Fence: fence, FirstAccess: s.acceptedFence < fence,
		AcceptedFence: s.acceptedFence, Awaited: fencing.Awaited(lease), HistoryUpTo: s.historyUpTo,
	}
	if access.FirstAccess { // ⚑ later ones meet the mark
		access.Since = fencing.Since(lease)
	}
	return access
}

// accept notes that the service has accepted a token, and the entries that the lease has read or
// stored.
func (s *leaseState) accept(fence int64, entries []storedriver.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acceptedFence = max(s.acceptedFence, fence)
	for _, e := range entries {
		if e.Place.Compare(s.historyUpTo) > 0 {
			s.historyUpTo = e.Place
		}
	}
}
