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

// Extend raises the time left once to ttl, [MinTTL] to 10 years. Extends and renewals never shorten it:
// one that arrives late does no harm. Extend fails with [ErrInvalidOption] or as [Lease.Err], or, with the
// deadline as before, with [ErrUnavailable], [ErrRefused], [ErrOutcomeUnknown] or the error of ctx.
func (le *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if le == nil {
		return ErrNotHeld
	}
	if err := validTTL(ttl); err != nil {
		return err
	}
	ttl = ttl.Truncate(time.Millisecond)
	return le.operate(ctx, OpExtend, ttl, func(ctx context.Context, op *Operation) error {
		return le.extend(ctx, op, ttl)
	})
}

// operate runs one operation on the lease, between the hooks of the Observer.
func (le *Lease) operate(ctx context.Context, name string, ttl time.Duration,
	run func(context.Context, *Operation) error) error {
	l := le.grant.locker
	start := time.Now()
	op := &Operation{Name: name, Backend: l.caps.Backend, Key: le.Key(), TTL: ttl, Fence: le.Fence()}
	ctx = l.begin(ctx, op)
	defer l.end(ctx, op, start)
	if !l.workBegins() {
		return op.complete(cmp.Or(le.Err(), ErrClosed))
	}
	defer l.workEnds()
	err := op.complete(run(ctx, op))
	op.Fence = le.Fence()
	return err
}

// beginRequest begins a request about the lease, and returns the time for it, at most ttl. settleLocked ends
// it.
func (le *Lease) beginRequest(ctx context.Context, operation string, ttl time.Duration) (limit time.Duration, err error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := le.errLocked(); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, callerLeft(operation, ctx)
	}
	g.unsettled++
	return min(ttl, g.trust.Left(trust.Now())), nil
}

func (le *Lease) extend(ctx context.Context, op *Operation, ttl time.Duration) (err error) {
	g := le.grant
	limit, err := le.beginRequest(ctx, "extend", ttl)
	if err != nil {
		return err
	}
	op.Attempts++
	sent := trust.Now()
	reply := driver.ExtendReply{Err: errCallDidNotReturn} // unless the driver returns
	defer func() { err = le.extended(ctx, sent, ttl, reply) }()
	reply, reply.Err = callDriver(ctx, limit, func(ctx context.Context) (driver.ExtendReply, error) {
		request := driver.ExtendRequest{Name: g.name, Owner: g.owner, TTL: ttl}
		reply := g.locker.driver.Extend(ctx, []driver.ExtendRequest{request})[0]
		return reply, reply.Err
	})
	return nil
}

// extended applies the answer to a request that was sent at sent.
func (le *Lease) extended(ctx context.Context, sent trust.Moment, ttl time.Duration, reply driver.ExtendReply) error {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settleLocked(reply.Err)
	if err := le.errLocked(); err != nil { // an end of the lease is the error
		return err
	}
	switch {
	case reply.Err == nil && !reply.Held:
		return le.notMineLocked("extend")
	case reply.Err == nil:
		g.extendedLocked(sent, ttl)
		return nil
	case ctx.Err() != nil && driver.MayHaveEffect(reply.Err):
		return failedWrite("extend", fmt.Errorf("no answer yet: %w", ctxError(ctx)))
	case ctx.Err() != nil && errors.Is(reply.Err, driver.ErrNotDone):
		return callerLeft("extend", ctx)
	}
	return failedWrite("extend", reply.Err)
}
