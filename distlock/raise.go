package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// raiseToken is fencing.RaiseToken.
func (le *Lease) raiseToken(ctx context.Context, above int64) error {
	if le == nil {
		return ErrNotHeld
	}
	if above < 0 || above >= driver.MaxFence {
		return badFloor(above)
	}
	return le.operate(ctx, OpRaiseToken, le.grant.ttl, func(ctx context.Context, op *Operation) error {
		return le.raise(ctx, op, above)
	})
}

func (le *Lease) raise(ctx context.Context, op *Operation, above int64) error {
	g, l := le.grant, le.grant.locker
	asked, before := time.Now(), le.Fence()
	if before > above {
		return le.Err()
	}
	limit, err := le.beginRequest(ctx, "raise token", g.ttl)
	if err != nil {
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
