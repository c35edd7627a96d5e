package distlock

import (
	"context"
	"time"
)

// leaseList is a set of leases. To be in it costs a lease nothing: locks of one process change hands hundreds of thousands of times
// per second.
type leaseList struct{ first *Lease }

// listed is a lease's place in the set.
type listed struct {
	in         bool
	prev, next *Lease
}

func (s *leaseList) add(le *Lease) {
	le.listed = listed{in: true, next: s.first}
	if s.first != nil {
		s.first.listed.prev = le
	}
	s.first = le
}

// remove does nothing to a lease that is not in the set.
func (s *leaseList) remove(le *Lease) {
	at := le.listed
	switch {
	case !at.in:
		return
	case at.prev != nil:
		at.prev.listed.next = at.next
	default:
		s.first = at.next
	}
	if at.next != nil {
		at.next.listed.prev = at.prev
	}
	le.listed = listed{}
}

// values is a context with a lease in it, and the values of another one, but neither its cancellation nor its deadline.
type values struct {
	of    context.Context
	lease *Lease
}

func (*values) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*values) Done() <-chan struct{}       { return nil }
func (*values) Err() error                  { return nil }

func (v *values) Value(key any) any {
	if k, ok := key.(leaseKey); ok && k.locker == v.lease.locker && k.key == v.lease.name.Key {
		return v.lease
	}
	return v.of.Value(key)
}
