package distlock

import (
	"time"

	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// tenure is one grant of the lock service. Leases of the process may follow each other in it, without the service being
// asked.
type tenure struct {
	won   time.Time // when the grant was learnt of
	first int64     // the tokens reserved for it
	last  int64
	hold  *hold // its record in the queue of the process
}

// handsOnLocked reports whether the lock may be handed on within the process, as far as that depends on the lease, which
// has just ended on this side.
//
// ⚑ Only soon after the service's grant, under a token that was reserved for it and a TTL that nobody has changed. Tokens do not
// run ahead of the clock: there is one for each microsecond gone by. Nothing that was asked under the old lease
// may still be on its way, as its answer would not reach the next holder.
func (le *Lease) handsOnLocked(t time.Time, ttl time.Duration) bool {
	age := t.Sub(le.tenure.won)
	fence := le.Fence() + 1
	return le.trust.HandsOn(trust.At(t), le.ttl) && le.unsettled == 0 && le.ttl == le.locker.opts.TTL && ttl == le.locker.opts.TTL &&
		fence <= le.tenure.last && fence-le.tenure.first <= age.Microseconds()
}

// successor is the lease of the one whom le is handed to. It goes on with what the service keeps for le, and what the
// process does for that.
func (le *Lease) successor(a *acquisition, at time.Time) *Lease {
	next := &Lease{
		locker: le.locker,
		name:   le.name,
		owner:  le.owner,
		ttl:    le.ttl,
		doubt:  le.doubt,
		tenure: le.tenure,
		trust:  le.trust,
		next:   le.next,
	}
	next.belongTo(a, le.Fence()+1, at)
	return next
}

// succeed puts the successor in the lease's place. It fails when the Locker has been closed.
func (le *Lease) succeed(next *Lease) bool {
	l := le.locker
	next.mu.Lock() // Close sees it before the rest is done
	defer next.mu.Unlock()
	if !l.succeed(le, next) {
		return false
	}
	l.expiries.replace(le, next)
	l.renewals.replace(le, next)
	return true
}
