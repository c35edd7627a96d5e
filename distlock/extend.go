package distlock

import (
	"context"
	"errors"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Extend sets the time the lease has left to ttl, once: the renewal schedule keeps the Locker's TTL, and never shortens
// what Extend has given. ttl is at least [MinTTL]; it may be shorter than what is left, which is of use where the
// schedule is off.
//
// Extend fails with [ErrInvalidOption], [ErrNotHeld] after Release, [ErrLost], [ErrUnavailable], or the error of ctx.
// After the last two the lease is still held, until the earlier of the two deadlines; an extension that arrives late
// counts. A shortening Extend that ends with ErrUnavailable leaves a lease that cannot be prolonged any more, because
// the request may still take effect at any time.
func (le *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if le == nil {
		return ErrNotHeld
	}
	if err := validTTL(ttl); err != nil {
		return err
	}
	ttl = ttl.Truncate(time.Millisecond)
	l := le.locker
	op := &Operation{Name: OpExtend, Backend: l.backend, Key: le.name.Key, TTL: ttl, Fence: le.fence}
	ctx = l.opts.Observer.Start(ctx, op)
	defer l.opts.Observer.End(ctx, op)
	op.Err = le.extend(ctx, op, ttl)
	op.Outcome = OutcomeOf(op.Err)
	return op.Err
}

func (le *Lease) extend(ctx context.Context, op *Operation, ttl time.Duration) error {
	// One Extend at a time: two whose order in the service is unknown would leave unknown which TTL holds there. Only one
	// that shortens is exact, so any other may arrive late without harm. The turn goes back when the answer is there, not
	// when the caller leaves.
	turn := le.token(&le.extending)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return failed("extend", ctx, errLeft)
	}
	start, shortens, err := le.beginExtend(ttl)
	if err != nil {
		<-turn
		return err
	}
	op.Attempts++
	settle := func(reply driver.ExtendReply) error {
		defer func() { <-turn }()
		return le.endExtend(start, ttl, shortens, reply)
	}
	request := []driver.ExtendRequest{{Name: le.name, Owner: le.owner, TTL: ttl, Exact: shortens}}
	reply, err := detached(ctx, le.locker, ttl,
		func(ctx context.Context) (driver.ExtendReply, error) {
			return le.locker.driver.Extend(ctx, request)[0], nil
		},
		func(reply driver.ExtendReply, _ error) { _ = settle(reply) })
	switch {
	case errors.Is(err, ErrClosed): // and so nothing was sent
		<-turn
		return err
	case err != nil:
		return failed("extend", ctx, err)
	}
	return settle(reply)
}

func (le *Lease) beginExtend(ttl time.Duration) (start moment, shortens bool, err error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	if err := le.errLocked(); err != nil {
		return start, false, err
	}
	if le.capped {
		return start, false, unavailable("extend", errCapped)
	}
	start = now()
	if end := trustedUntil(start, ttl); end.before(le.deadline) {
		// ⚑ Lowered before it is sent: once it is sent, the service may have shortened the lease. And the schedule
		// pauses: a renewal sent now could reach the service before the Extend, and its answer come after it.
		le.locker.renewals.remove(le)
		le.deadline = end
		le.epoch++
		le.expiry.Reset(until(end))
		shortens = true
	}
	return start, shortens, nil
}

func (le *Lease) endExtend(start moment, ttl time.Duration, shortens bool, reply driver.ExtendReply) error {
	if reply.Err == nil && !reply.Held {
		return le.lose(errNotMine)
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	next := start.add(min(le.period(), ttl/3))
	switch {
	case reply.Err == nil:
		le.trustLocked(start, ttl)
	case shortens:
		// A copy of the request may still be on its way, and shorten whatever a later one gives.
		le.capped = true
	default:
		next = now().add(le.period() / 4)
	}
	if !le.capped && le.state != released && le.state != lost {
		le.locker.renewals.add(le, next)
	}
	if reply.Err != nil {
		return unavailable("extend", reply.Err)
	}
	return nil
}

// trustLocked moves the deadline after an extension that was sent at start has succeeded; it never moves it back.
func (le *Lease) trustLocked(start moment, ttl time.Duration) {
	if end := trustedUntil(start, ttl); !le.capped && le.deadline.before(end) {
		le.deadline = end
	}
}

var errCapped = errors.New("an Extend that shortened the lease got no answer, so its end is settled: release it and acquire anew")
