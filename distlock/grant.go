package distlock

import (
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// grant is one grant of the backend, as this process holds it. The leases of local handoffs share it,
// one after the other. One timer serves its deadline and the patience of the renewal under way.
//
// Lock order: mu comes before the mutexes of the queue, the renewals, the clean-up, the Locker and the
// reports. None of these is held while a grant is used. Only that of the reports is taken under another.
type grant struct {
	locker          *Locker
	name            driver.Name
	owner           string
	ttl             time.Duration // each renewal asks for it
	copiesMayArrive bool          // a copy of a request of the acquisition may still be under way

	won time.Time // when the grant arrived

	mu      sync.Mutex // guards the rest, and the states of all leases of the grant
	holder  *Lease     // the last lease of the grant
	first   int64      // the reserved tokens
	last    int64
	trust   trust.Trust
	changed bool        // an Extend or a raise of the token was sent
	timer   *time.Timer // nil before start
	over    bool        // nothing is left for the timer
	schedule
	queue   *queued   // in the queue of the process
	removal sync.Cond // the end of a call of Release
}

// newGrant makes a grant that lasts for ttl from some moment after sent, with its first lease.
func newGrant(a *acquisition, sent trust.Moment, ttl time.Duration, reply driver.AcquireReply) *grant {
	g := &grant{
		locker:          a.locker,
		name:            a.req.Name,
		owner:           a.req.Owner,
		ttl:             a.req.TTL,
		copiesMayArrive: a.copiesMayArrive,
		won:             time.Now(),
		first:           reply.Fence,
		last:            reply.FenceEnd,
		trust:           trust.Granted(sent, ttl),
	}
	g.removal.L = &g.mu
	g.holder = g.lease(a, reply.Fence, g.won)
	return g
}

// startLocked begins to enforce the deadline and to renew.
func (g *grant) startLocked() {
	g.renewAtLocked(g.trust.FirstRenewal(trust.Now(), g.ttl, g.period()))
}

// armLocked sets the timer to the earliest moment that the grant waits for.
func (g *grant) armLocked() {
	if g.over {
		return
	}
	at := g.trust.Deadline()
	if r := g.underway; r != nil && r.overdue.Before(at) {
		at = r.overdue
	}
	if wait := trust.Until(at); g.timer == nil {
		g.timer = time.AfterFunc(atLeastOneTick(wait), g.onTimer)
	} else {
		g.timer.Reset(atLeastOneTick(wait))
	}
}

// onTimer serves the deadline, then the patience. An early or second call changes nothing.
func (g *grant) onTimer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := trust.Now()
	switch {
	case g.over:
	case g.trust.Over(at) && (g.holder.state == released || g.holder.releasedByWrite): // its Release takes long
		g.holder.cancel(ErrNotHeld)
		g.queue.End(true)
		g.stopLocked()
	case g.trust.Over(at):
		_ = g.holder.lossLocked(errDeadline)
	case g.underway != nil && !at.Before(g.underway.overdue):
		g.overdueLocked()
	default:
		g.armLocked()
	}
}

// stopLocked ends timer and renewal.
func (g *grant) stopLocked() {
	g.planned, g.underway = false, nil
	g.over = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

// extendedLocked moves the deadline after an extension that was sent at sent.
func (g *grant) extendedLocked(sent trust.Moment, ttl time.Duration) {
	g.trust.Extended(sent, ttl)
	g.armLocked()
}

// mayRenewLocked reports whether the grant is renewed at all. ⚑ Not once a write may release the lock.
func (g *grant) mayRenewLocked() bool { return g.period() > 0 && !g.holder.lastWriteSent }

// mayHandOffLocked reports whether the next waiter of the process, which wants ttl, may go on with the grant.
// A closed Locker hands nothing off.
// ⚑ Only as the backend granted it, with the Locker's TTL: an Extend, a raise or a last write may have an
// effect yet. Only under a reserved token, which does not run ahead of the clock: there is one for each
// microsecond.
func (g *grant) mayHandOffLocked(at time.Time, ttl time.Duration) bool {
	token, common := g.holder.Fence()+1, g.locker.opts.TTL
	return g.locker.closing.Err() == nil && !g.trust.TooLittleLeft(trust.At(at)) &&
		!g.changed && !g.holder.lastWriteSent &&
		g.ttl == common && ttl == common &&
		token <= g.last && token-g.first <= at.Sub(g.won).Microseconds()
}

// mayReleaseWithWriteLocked reports whether the last write of a lease may release the lock.
// ⚑ A lock whose acquire was sent more than once is released with a tombstone.
func (le *Lease) mayReleaseWithWriteLocked() bool {
	g := le.grant
	return le.errLocked() == nil && le.state != releasing && !le.lastWriteSent && !g.copiesMayArrive && !g.queue.Wanted()
}
