package distlock

import (
	"fmt"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// grant is one grant of the backend, as this process holds it. The leases of local handoffs share it,
// one after the other. One timer serves its deadline and the patience of the renewal under way.
//
// Lock order: mu comes before the mutexes of the queue, the alarm, the clean-up, the Locker and the
// reports. None of these is held while a grant is used. Those of the alarm and the reports may be taken
// under the others.
type grant struct {
	locker          *Locker
	name            driver.Name
	owner           string
	ttl             time.Duration // each renewal asks for it
	copiesMayArrive bool          // a copy of a request of the acquisition may still be under way
	sent            trust.Moment  // when the request was sent that the backend granted

	mu         sync.Mutex // guards the rest, and the states of all leases of the grant
	holder     *Lease     // the last lease of the grant
	firstToken int64      // the reserved tokens
	lastToken  int64
	trust      trust.Trust
	changed    time.Duration // the longest TTL of an Extend or a raise of the token that was sent; 0: none
	timer      *time.Timer   // nil before start
	stopped    bool          // nothing is left for the timer
	// A planned renewal becomes a request under way when it is due, and its answer plans the next.
	planned  bool
	due      trust.Moment
	underway *renewal
	inQueue  *queueGrant // in the queue of the process
}

// newGrant makes a grant that lasts for ttl from some moment after sent, with its first lease.
func newGrant(a *acquisition, sent trust.Moment, ttl time.Duration, reply driver.AcquireReply) *grant {
	g := &grant{
		locker:          a.locker,
		name:            a.req.Name,
		owner:           a.req.Owner,
		ttl:             a.req.TTL,
		copiesMayArrive: a.copiesMayArrive,
		sent:            sent,
		firstToken:      reply.Fence,
		lastToken:       reply.FenceEnd,
		trust:           trust.Granted(sent, ttl),
	}
	g.holder = g.newLease(a, reply.Fence, time.Now())
	return g
}

// startLocked begins to enforce the deadline and to renew.
func (g *grant) startLocked() {
	g.renewAtLocked(g.trust.FirstRenewal(trust.Now(), g.ttl, g.period()))
}

// armLocked sets the timer to the earliest moment that the grant waits for.
func (g *grant) armLocked() {
	if g.stopped {
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

// onTimer serves the deadline, then the patience for the renewal under way. An early or second call changes
// nothing. An answer that comes after the patience counts.
func (g *grant) onTimer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := trust.Now()
	switch {
	case g.stopped:
	case g.trust.Over(at) && (g.holder.state == released || g.holder.lastWrite == releasedByWrite): // its Release is slow
		g.holder.cancel(ErrNotHeld)
		g.inQueue.End(true)
		g.stopLocked()
	case g.trust.Over(at):
		_ = g.holder.lossLocked(errDeadline)
	case g.underway != nil && !at.Before(g.underway.overdue):
		overdue := g.underway
		g.retryLocked()
		overdue.report(failedRead("renew",
			fmt.Errorf("no answer within %s", time.Since(overdue.began).Round(time.Millisecond))))
	default:
		g.armLocked()
	}
}

// stopLocked ends timer and renewal.
func (g *grant) stopLocked() {
	g.pauseRenewalLocked()
	g.stopped = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

// extendedLocked moves the deadline after an extension that was sent at sent.
func (g *grant) extendedLocked(sent trust.Moment, ttl time.Duration) {
	g.trust.Extended(sent, ttl)
	g.armLocked()
}

// mayHandOffLocked reports whether a, the next waiter of the process, may go on with the grant of the given
// age. A closed Locker hands nothing off.
// ⚑ Only as the backend granted it, with the Locker's TTL: an Extend, a raise or a last write may have an
// effect yet. Only under a reserved token, which does not run ahead of the clock: there is one for each
// microsecond.
// ⚑ An ask means the grant, so none follows it, a Turn takes the grant only if it waited before, and the
// work that the backend shows is that of the lease.
func (g *grant) mayHandOffLocked(at time.Time, age time.Duration, a *acquisition) bool {
	token, common := g.holder.Fence()+1, g.locker.opts.TTL
	return g.locker.closing.Err() == nil && !g.trust.TooLittleLeft(trust.At(at)) &&
		g.changed == 0 && g.holder.lastWrite == noLastWrite &&
		g.ttl == common && a.op.TTL == common &&
		!g.holder.asked && !(a.settings.Turn && g.cameLate(a)) &&
		a.settings.Work == "" && g.holder.metadata[driver.WorkKey] == "" &&
		token <= g.lastToken && token-g.firstToken <= age.Microseconds()
}

// cameLate reports whether a waiter came after the request of the grant was sent.
func (g *grant) cameLate(a *acquisition) bool { return g.sent.Before(a.began) }
