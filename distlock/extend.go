package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
	"github.com/belugalock/belugalock/internal/calls"
)

// Extend sets the time left once to ttl, at least [MinTTL]. Renewals never shorten it.
//
// Extend fails with [ErrInvalidOption] or as [Lease.Err], or, with the lease held until the earlier of
// both deadlines, with [ErrUnavailable], [ErrRefused], [ErrOutcomeUnknown] or the error of ctx. After a
// shortening Extend with an unknown outcome, the lease cannot be prolonged.
func (le *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if le == nil {
		return ErrNotHeld
	}
	if err := validTTL(ttl); err != nil {
		return err
	}
	return le.observedExtend(ctx, &extension{lease: le, ttl: ttl.Truncate(time.Millisecond)})
}

// confirm asks the service whether the lease is still held, and prolongs it if so.
func (le *Lease) confirm(ctx context.Context) error {
	return le.observedExtend(ctx, &extension{lease: le, ttl: le.ttl, confirms: true})
}

func (le *Lease) observedExtend(ctx context.Context, e *extension) error {
	l := le.locker
	op := &Operation{Name: OpExtend, Backend: l.backend, Key: le.name.Key, TTL: e.ttl, Fence: le.Fence(), Scheduled: e.confirms}
	ctx = l.observe(ctx, op)
	defer l.opts.Observer.End(ctx, op)
	return op.end(e.run(ctx, op))
}

// extension is one Extend under way.
type extension struct {
	lease    *Lease
	ttl      time.Duration
	confirms bool // asks for a lease whose clock is in doubt; never shortens it

	start    trust.Moment
	limit    time.Duration // at most the time left of the lease
	shortens bool
}

func (e *extension) run(ctx context.Context, op *Operation) error {
	// One Extend at a time: two whose order in the service is unknown would leave unknown which TTL holds there. Only one
	// that shortens is exact, so any other may arrive late without harm. The turn goes back when the answer is there, not
	// when the caller leaves.
	le := e.lease
	if !le.locker.begin() {
		return cmp.Or(le.gone(), ErrClosed)
	}
	defer le.locker.end()
	turn := le.token(&le.extending)
	le.mu.Lock()
	patience := time.NewTimer(positive(min(e.ttl, le.trust.Left(trust.Now()))))
	le.mu.Unlock()
	defer patience.Stop()
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return cmp.Or(le.gone(), left("extend", ctx))
	case <-le.ctx.Done():
		return le.Err()
	case <-patience.C:
		return cmp.Or(le.gone(), unavailable("extend", errors.New("another Extend of this lease has no answer yet, and nothing was sent")))
	}
	if err := e.begin(ctx); err != nil {
		<-turn
		return err
	}
	op.Attempts++
	settle := func(reply driver.ExtendReply) error {
		defer func() { <-turn }()
		return e.end(reply)
	}
	request := []driver.ExtendRequest{{Name: le.name, Owner: le.owner, TTL: e.ttl, Exact: e.shortens}}
	reply, err := call(ctx, le.locker, e.limit,
		func(ctx context.Context) (driver.ExtendReply, error) {
			return le.locker.driver.Extend(ctx, request)[0], nil
		},
		func(reply driver.ExtendReply, err error) {
			reply.Err = cmp.Or(err, reply.Err)
			_ = settle(reply)
		})
	switch {
	case err == calls.ErrLeft && e.confirms:
		return left("check", ctx)
	case err == calls.ErrLeft:
		return failedWrite("extend", fmt.Errorf("%w: %w", err, ended(ctx)))
	case err != nil && e.confirms:
		return cmp.Or(le.gone(), failedRead("check", err))
	case err != nil: // if the lease has ended, its end is the error
		return cmp.Or(le.gone(), failedWrite("extend", err))
	}
	return settle(reply)
}

func (e *extension) begin(ctx context.Context) error {
	le := e.lease
	le.mu.Lock()
	defer le.mu.Unlock()
	if err := le.goneLocked(); err != nil {
		return err
	}
	if ctx.Err() != nil { // select may have left that to chance
		return left("extend", ctx)
	}
	if le.trust.Frozen() && !e.confirms {
		return unavailable("extend", errCapped)
	}
	le.unsettled++
	e.start = trust.Now()
	if !e.confirms && le.trust.Shorten(e.start, e.ttl) {
		// ⚑ Lowered before it is sent: once it is sent, the service may have shortened the lease. And the schedule
		// pauses: a renewal sent now could reach the service before the Extend, and its answer come after it.
		le.locker.renewals.pause(le)
		le.locker.expiries.watch(le, le.trust.Deadline())
		e.shortens = true
	}
	e.limit = min(e.ttl, le.trust.Left(trust.Now()))
	return nil
}

func (e *extension) end(reply driver.ExtendReply) error {
	le := e.lease
	defer le.settle()
	if reply.Err == nil && !reply.Held {
		return le.lose(errNotMine)
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	next := e.start.Add(min(le.period(), e.ttl/3))
	switch {
	case reply.Err == nil:
		le.extendedLocked(e.start, e.ttl, le.trust.Epoch())
		le.locker.renewals.note(le, false)
		le.locker.renewals.logOutage(nil)
	case e.shortens && driver.MayHaveEffect(reply.Err):
		// A copy of the request may still be on its way, and shorten whatever a later one gives.
		le.trust.Freeze()
	default:
		next = le.trust.Retry(trust.Now(), le.period())
	}
	if !le.trust.Frozen() && le.state != released && le.state != lost {
		le.locker.renewals.add(le, next)
	}
	switch {
	case reply.Err == nil:
		return nil
	case e.confirms: // a question
		return failedRead("check", calls.OwnDeadline(reply.Err, e.limit, trust.Now().Sub(e.start)))
	default:
		return failedWrite("extend", calls.OwnDeadline(reply.Err, e.limit, trust.Now().Sub(e.start)))
	}
}

// extendedLocked moves the deadline after an extension that was sent at sent, in the given epoch.
func (le *Lease) extendedLocked(sent trust.Moment, ttl time.Duration, epoch int) {
	if le.state != released && le.state != lost {
		le.trust.Extended(sent, ttl, epoch)
		le.locker.expiries.watch(le, le.trust.Deadline())
	}
}

var errCapped = errors.New("an Extend that shortened the lease got no answer, so its end is settled: release it and acquire anew")
