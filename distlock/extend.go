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

// Extend raises the time left once to ttl, [MinTTL] to 10 years. Errors: [ErrLost], [ErrNotHeld], or of a
// lease that goes on, [ErrInvalidOption], [ErrInterrupted], [ErrUnavailable], [ErrRefused],
// [ErrOutcomeUnknown], that of ctx.
func (le *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if le == nil {
		return ErrNotHeld
	}
	if err := validTTL(ttl); err != nil {
		return err
	}
	if context.Cause(le.work) == ErrInterrupted {
		return cmp.Or(le.Err(), ErrInterrupted)
	}
	ttl = ttl.Truncate(time.Millisecond)
	g := le.grant
	var reply driver.ExtendReply
	request := []driver.ExtendRequest{{Name: g.name, Owner: g.owner, TTL: ttl}}
	return le.operate(ctx, "extend", ttl, &Operation{Name: OpExtend, TTL: ttl}, change{
		send: func(ctx context.Context) (bool, error) {
			reply = g.locker.driver.Extend(ctx, request)[0]
			return reply.Held, reply.Err
		},
		apply: func(sent trust.Moment) error {
			g.extendedLocked(sent, ttl)
			if reply.Asked {
				le.askedLocked()
			}
			return nil
		},
		failed: func(ctx context.Context, err error) error {
			switch {
			case ctx.Err() != nil && driver.MayHaveEffect(err):
				err = fmt.Errorf("no answer yet: %w", ctxError(ctx))
			case ctx.Err() != nil && errors.Is(err, driver.ErrNotDone):
				return callerLeft("extend", ctx)
			}
			return failedWrite("extend", err)
		},
	})
}

// change is a request of the holder that changes a grant in the backend.
type change struct {
	send   func(context.Context) (held bool, err error)
	apply  func(sent trust.Moment) error // the answer to a lease that is held still, under grant.mu
	failed func(ctx context.Context, err error) error
}

// operate makes a change within limit and the time of the lease, between the hooks of the Observer. An end of
// the lease is the error.
func (le *Lease) operate(ctx context.Context, verb string, limit time.Duration, op *Operation, c change) (err error) {
	g, l := le.grant, le.grant.locker
	start := time.Now()
	op.Key, op.Fence = le.Key(), le.Fence()
	ctx = l.begin(ctx, op)
	defer l.end(ctx, op, start)
	if !l.workBegins() {
		return op.complete(cmp.Or(le.Err(), ErrClosed))
	}
	defer l.workEnds()
	if limit, err = le.admitRequest(ctx, verb, limit); err != nil {
		return op.complete(err)
	}
	op.Attempts++
	sent := trust.Now()
	held, err := callDriver(ctx, limit, c.send)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch ended := le.errLocked(); {
	case ended != nil:
		err = ended
	case err != nil:
		err = c.failed(ctx, err)
	case !held && le.lastWrite != noLastWrite: // ⚑ no loss: that may have released the lock
		err = unavailable(verb, errLastWrite)
	case !held:
		err = le.lossLocked(errNotMine)
	default:
		err = c.apply(sent)
	}
	op.Fence = le.Fence()
	return op.complete(err)
}

// admitRequest admits a change of a lease that is held, and returns the time for it, at most limit.
// ⚑ No local handoff follows: the change may take effect late.
func (le *Lease) admitRequest(ctx context.Context, verb string, limit time.Duration) (time.Duration, error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := le.errLocked(); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, callerLeft(verb, ctx)
	}
	g.changed = max(g.changed, limit)
	return min(limit, g.trust.Left(trust.Now())), nil
}
