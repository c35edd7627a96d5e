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

// raiseToken is fencing.RaiseToken.
func (le *Lease) raiseToken(ctx context.Context, above int64) error {
	if le == nil {
		return ErrNotHeld
	}
	if above < 0 || above >= driver.MaxFence {
		return badFloor(above)
	}
	l := le.grant.locker
	start := time.Now()
	op := &Operation{Name: OpRaiseToken, Backend: l.caps.Backend, Key: le.Key(), TTL: le.grant.ttl, Fence: le.Fence()}
	ctx = l.begin(ctx, op)
	defer l.end(ctx, op, start)
	err := op.complete(le.raise(ctx, op, above))
	op.Fence = le.Fence()
	return err
}

func (le *Lease) raise(ctx context.Context, op *Operation, above int64) error {
	g, l := le.grant, le.grant.locker
	if !l.workBegins() {
		return cmp.Or(le.Err(), ErrClosed)
	}
	defer l.workEnds()
	asked, before := time.Now(), le.Fence()
	limit, err := le.beginRaise(ctx, above)
	if limit == 0 {
		return err
	}
	err = errCallDidNotReturn // unless the driver returns
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.settleLocked(err)
	}()
	op.Attempts++
	var reply driver.RaiseReply
	reply, err = callDriver(ctx, limit, func(ctx context.Context) (driver.RaiseReply, error) {
		return l.driver.Raise(ctx, driver.RaiseRequest{Name: g.name, Owner: g.owner, Floor: above + 1})
	})
	switch { // a higher token in the backend alone does no harm
	case errors.Is(err, driver.ErrFloor):
		return badFloor(above)
	case err != nil && ctx.Err() != nil:
		return callerLeft("raise token", ctx)
	case err != nil:
		return cmp.Or(le.Err(), failedRead("raise token", err))
	case reply.Held:
		l.queues.Each(le.Key(), func(waiting *acquisition) { waiting.noteAwaited(before, asked) })
	}
	return le.raised(reply, above)
}

// beginRaise returns the time for the request, or 0 if none is to be sent.
func (le *Lease) beginRaise(ctx context.Context, above int64) (limit time.Duration, err error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := le.errLocked(); err != nil || le.Fence() > above {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, callerLeft("raise token", ctx)
	}
	g.unsettled++
	return min(g.ttl, g.trust.Left(trust.Now())), nil
}

// raised applies the answer of the backend.
func (le *Lease) raised(reply driver.RaiseReply, above int64) error {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if !reply.Held {
		return le.notMineLocked("raise token")
	}
	if !le.isOver() && le.Fence() < reply.Fence {
		le.fence.Store(reply.Fence)
		le.awaited = 0
		g.first, g.last = reply.Fence, reply.FenceEnd
	}
	if err := le.errLocked(); err != nil {
		return err
	}
	if le.Fence() <= above { // a driver that does not know floors
		return unavailable("raise token", fmt.Errorf(
			"the lock service granted %d, but more than %d was asked for", le.Fence(), above))
	}
	return nil
}

func badFloor(above int64) error {
	return invalidOption("the fencing token cannot rise above %d, which must be from 0 to a year ahead of "+
		"the lock service's clock; the token stays as it is; check the mark of the store, which may be damaged, "+
		"and the clock of the lock service", above)
}
