package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Extend sets the time left once to ttl, [MinTTL] to 10 years. Renewals never shorten it. Extend
// fails with [ErrInvalidOption] or as [Lease.Err], or, with the lease held until the earlier of
// both deadlines, with [ErrUnavailable], [ErrRefused], [ErrOutcomeUnknown] or the error of ctx.
// After a shortening Extend with an unknown outcome, the lease cannot be prolonged.
func (le *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if le == nil {
		return ErrNotHeld
	}
	if err := validTTL(ttl); err != nil {
		return err
	}
	l := le.grant.locker
	e := &extension{lease: le, ttl: ttl.Truncate(time.Millisecond)}
	start := time.Now()
	op := &Operation{Name: OpExtend, Backend: l.caps.Backend, Key: le.Key(), TTL: e.ttl, Fence: le.Fence()}
	ctx = l.begin(ctx, op)
	defer l.end(ctx, op, start)
	return op.complete(e.run(ctx, op))
}

// extension is one Extend under way.
type extension struct {
	lease    *Lease
	ttl      time.Duration
	start    trust.Moment
	epoch    int
	limit    time.Duration // at most the time left of the lease
	shortens bool
}

// run sends the request and applies the answer. One Extend of a lease is under way at a time: two whose
// order in the backend is unknown would leave unknown which TTL holds there. Only an Extend that
// shortens is exact, so any other may arrive late without harm.
func (e *extension) run(ctx context.Context, op *Operation) (err error) {
	le, g := e.lease, e.lease.grant
	if !g.locker.workBegins() {
		return cmp.Or(le.Err(), ErrClosed)
	}
	defer g.locker.workEnds()
	g.mu.Lock()
	patience := time.NewTimer(atLeastOneTick(min(e.ttl, g.trust.Left(trust.Now()))))
	g.mu.Unlock()
	defer patience.Stop()
	select {
	case g.extending <- struct{}{}:
		defer func() { <-g.extending }()
	case <-ctx.Done():
		return cmp.Or(le.Err(), callerLeft("extend", ctx))
	case <-le.ctx.Done():
		return le.Err()
	case <-patience.C:
		return cmp.Or(le.Err(), unavailable("extend", errBehind))
	}
	if err := e.begin(ctx); err != nil {
		return err
	}
	op.Attempts++
	reply := driver.ExtendReply{Err: errCallDidNotReturn} // unless the driver returns
	defer func() { err = e.apply(ctx, reply) }()
	reply, reply.Err = callDriver(ctx, e.limit, func(ctx context.Context) (driver.ExtendReply, error) {
		request := driver.ExtendRequest{Name: g.name, Owner: g.owner, TTL: e.ttl, Exact: e.shortens}
		reply := g.locker.driver.Extend(ctx, []driver.ExtendRequest{request})[0]
		return reply, reply.Err
	})
	return nil
}

func (e *extension) begin(ctx context.Context) error {
	le, g := e.lease, e.lease.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := le.errLocked(); err != nil {
		return err
	}
	if ctx.Err() != nil { // select may have left that to chance
		return callerLeft("extend", ctx)
	}
	if le.leaving { // ⚑ the renewals after the write could overtake an Extend that shortens
		return unavailable("extend", errLeaving)
	}
	if g.trust.Frozen() {
		return unavailable("extend", errFrozen)
	}
	g.unsettled++
	e.start = trust.Now()
	if g.trust.Shorten(e.start, e.ttl) {
		// ⚑ Renewal pauses: a renewal sent now could reach the backend before the Extend, and its answer
		// come after it.
		g.pauseRenewalLocked()
		e.shortens = true
	}
	e.epoch = g.trust.Epoch()
	e.limit = min(e.ttl, g.trust.Left(trust.Now()))
	return nil
}

func (e *extension) apply(ctx context.Context, reply driver.ExtendReply) error {
	le, g := e.lease, e.lease.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settleLocked(reply.Err)
	switch { // an end of the lease is the error
	case le.isOver():
		return le.endReason
	case le.expiredLocked(trust.Now()):
		return le.lossLocked(errDeadline)
	}
	next := e.start.Add(min(g.period(), e.ttl/3))
	switch {
	case reply.Err == nil && !reply.Held:
		return le.notMineLocked("extend")
	case reply.Err == nil:
		g.extendedLocked(e.start, e.ttl, e.epoch)
	case e.shortens && driver.MayHaveEffect(reply.Err):
		// A copy of the request may still be on its way, and shorten whatever a later one gives.
		g.trust.Freeze()
	default:
		next = g.trust.Retry(trust.Now(), g.period())
	}
	if !g.trust.Frozen() {
		g.renewAtLocked(next)
	}
	switch {
	case reply.Err == nil:
		return nil
	case ctx.Err() != nil && driver.MayHaveEffect(reply.Err):
		return failedWrite("extend", fmt.Errorf("no answer yet: %w", ctxError(ctx)))
	case ctx.Err() != nil && errors.Is(reply.Err, driver.ErrNotDone):
		return callerLeft("extend", ctx)
	}
	return failedWrite("extend", reply.Err)
}

var (
	errBehind  = errors.New("another Extend of this lease has no answer yet, and nothing was sent")
	errLeaving = errors.New("the last write of a store, which may release the lock, is under way or had no answer: " +
		"release the lease")
	errFrozen = errors.New("an Extend that shortened the lease got no answer, so its end is settled: " +
		"release it and acquire anew")
)
