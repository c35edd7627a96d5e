package distlock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// renewal is one renewal of a grant.
type renewal struct {
	lease    *Lease       // the holder
	deadline trust.Moment // of the grant, before the answer
	began    time.Time
	overdue  trust.Moment // when the patience ends
	reported atomic.Bool
}

// period is the time between two renewals of the grant; not positive: it is not renewed.
func (g *grant) period() time.Duration {
	every := g.locker.opts.RenewEvery
	if every > 0 && g.ttl != g.locker.opts.TTL {
		every = g.ttl / 3
	}
	return every
}

// renewAtLocked plans the next renewal. The answer to an earlier one may still move the deadline.
func (g *grant) renewAtLocked(due trust.Moment) {
	g.underway, g.due = nil, due
	// ⚑ A last write may release the lock. A holder that ignores an ask keeps it for a TTL at most.
	g.planned = g.period() > 0 && g.holder.lastWrite == noLastWrite && !g.holder.lastTTL
	if g.planned {
		g.locker.alarm.set(due)
	}
	g.armLocked()
}

// pauseRenewalLocked ends the plan until the next call of renewAtLocked.
func (g *grant) pauseRenewalLocked() {
	g.planned, g.underway = false, nil
}

// renewalDue reports whether the planned renewal is due.
func (g *grant) renewalDue() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.planned && trust.Until(g.due) <= 0
}

// takeRenewal begins a renewal that is due soon, if another is due: a renewal that is a little early
// saves an exchange. Otherwise it sets the alarm again.
func (g *grant) takeRenewal(another bool) *renewal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.planned {
		return nil
	}
	wait := trust.Until(g.due)
	if !another || wait > g.period()/8 {
		g.locker.alarm.set(g.due)
		return nil
	}
	g.planned = false
	maxHold := g.locker.opts.MaxHold
	if maxHold <= 0 || time.Until(g.holder.acquired.Add(maxHold)) >= wait {
		at := trust.Now()
		g.underway = &renewal{lease: g.holder, deadline: g.trust.Deadline(), began: time.Now(),
			overdue: at.Add(g.trust.Patience(at, g.period()))}
		g.armLocked()
	}
	return g.underway
}

// alarm is the one timer of a Locker for its look at the grants. Grants are renewed together: timers of
// their own would fire together, with a goroutine for each.
type alarm struct {
	look  func()
	mu    sync.Mutex
	timer *time.Timer
	at    trust.Moment
	armed bool
}

// set has the alarm fire at a moment or before.
func (a *alarm) set(at trust.Moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.armed && !at.Before(a.at) {
		return
	}
	a.armed, a.at = true, at
	if wait := trust.Until(at); a.timer == nil {
		a.timer = time.AfterFunc(atLeastOneTick(wait), a.fire)
	} else {
		a.timer.Reset(atLeastOneTick(wait))
	}
}

func (a *alarm) fire() {
	a.mu.Lock()
	a.armed = false
	a.mu.Unlock()
	a.look()
}

// watchEvery is how often a Locker that has leases looks for a suspend.
const watchEvery = time.Second / 2

func (l *Locker) held() []*grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.grants))
}

// look sends the renewals that are due, in batches. After a suspend it looks at all deadlines,
// because timers stood still. It goes on while there are grants.
func (l *Locker) look() {
	grants := l.held()
	if len(grants) == 0 {
		return
	}
	l.alarm.set(trust.Now().Add(watchEvery))
	for _, g := range grants {
		g.onTimer() // timers stand still during a suspend
	}
	due := slices.ContainsFunc(grants, (*grant).renewalDue)
	var renewals []*renewal
	for _, g := range grants {
		if r := g.takeRenewal(due); r != nil {
			renewals = append(renewals, r)
		}
	}
	for batch := range slices.Chunk(renewals, driver.MaxBatch) {
		go l.renew(batch)
	}
}

// renew sends one batch.
//
// ⚑ Patience belongs to the lease: a lease near its deadline does not cut the time of the others. The
// call's context ends with the last deadline of the batch, as it was when the batch was sent: until
// then an answer still counts. It lasts a TTL at most, because calls that hang keep connections.
func (l *Locker) renew(batch []*renewal) {
	if !l.workBegins() {
		return
	}
	defer l.workEnds()
	var longest time.Duration
	requests := make([]driver.ExtendRequest, len(batch))
	for i, r := range batch {
		g := r.lease.grant
		requests[i] = driver.ExtendRequest{Name: g.name, Owner: g.owner, TTL: g.ttl}
		longest = max(longest, min(trust.Until(r.deadline), g.ttl))
	}
	ctx, cancel := context.WithTimeout(l.renewing, atLeastOneTick(longest))
	defer cancel()
	start := trust.Now()
	replies := l.driver.Extend(ctx, requests)
	for i, r := range batch {
		r.report(r.answered(start, replies[i]))
	}
}

// answered applies the reply to a renewal that was sent at start. It may come late, after the next
// renewal was planned, or after the release of the lease.
func (r *renewal) answered(start trust.Moment, reply driver.ExtendReply) error {
	g := r.lease.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	awaited := g.underway == r
	switch holder := g.holder; {
	case holder.state == lost:
		return holder.endReason
	case holder.isOver() || holder.lastWrite != noLastWrite: // ⚑ its last write may have released the lock
		if !reply.Held { // neither done, nor a failure of a lease that goes on
			r.reported.Store(true)
		}
		return nil
	case reply.Err != nil:
		if awaited {
			g.retryLocked()
		}
		return failedRead("renew", reply.Err) // it is tried again
	case !reply.Held: // final, however late it comes
		return holder.lossLocked(errNotMine)
	}
	g.extendedLocked(start, g.ttl)
	switch {
	case reply.Asked, awaited && g.holder.asked: // ⚑ a failover may have lost the ask
		g.holder.askedLocked()
	case awaited:
		g.renewAtLocked(start.Add(g.period()))
	}
	return nil
}

// retryLocked plans another try of the renewal under way, which failed or is overdue.
func (g *grant) retryLocked() {
	g.renewAtLocked(g.trust.Retry(trust.Now(), g.period()))
}

// report shows once, to the Observer and in the log, how a renewal ended. A loss has its own line.
func (r *renewal) report(err error) {
	if r.reported.Swap(true) {
		return
	}
	le, l := r.lease, r.lease.grant.locker
	if err != nil && !errors.Is(err, ErrLost) {
		l.log(le.ctx, slog.LevelWarn, "distlock: a renewal failed; it is tried again until the deadline of the lease",
			le.Key(), "fence", le.Fence(), "error", err)
	}
	le.report(le.ctx, &Operation{Name: OpExtend, Key: le.Key(),
		TTL: le.grant.ttl, Fence: le.Fence(), Scheduled: true, Began: r.began, Wait: time.Since(r.began), Attempts: 1,
		Err: err, Outcome: OutcomeOf(err)}, false)
}
