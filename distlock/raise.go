package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
	"github.com/belugalock/belugalock/internal/calls"
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
	op := &Operation{Name: OpRaiseToken, Backend: l.backend, Key: le.Key(), TTL: le.grant.ttl, Fence: le.Fence()}
	ctx = l.observe(ctx, op)
	defer l.opts.Observer.End(ctx, op)
	err := op.end(le.raise(ctx, op, above))
	op.Fence = le.Fence()
	return err
}

func (le *Lease) raise(ctx context.Context, op *Operation, above int64) error {
	g, l := le.grant, le.grant.locker
	if !l.begin() {
		return cmp.Or(le.gone(), ErrClosed)
	}
	defer l.end()
	if err := le.check(ctx); err != nil || le.Fence() > above {
		return err
	}
	if ctx.Err() != nil {
		return left("raise token", ctx)
	}
	op.Attempts++
	request := driver.RaiseRequest{Name: g.name, Owner: g.owner, Floor: above + 1}
	g.mu.Lock()
	if err := le.goneLocked(); err != nil { // released since, perhaps with a local handoff
		g.mu.Unlock()
		return err
	}
	g.unsettled++
	limit := min(g.ttl, g.trust.Left(trust.Now()))
	g.mu.Unlock()
	settle := func(reply driver.RaiseReply, err error) error {
		defer g.settle()
		switch {
		case errors.Is(err, driver.ErrFloor):
			return badFloor(above)
		case err != nil:
			return failedRead("raise token", err) // a higher token in the backend alone does no harm
		case !reply.Held:
			return le.lose(errNotMine)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if !le.isOver() && le.Fence() < reply.Fence {
			le.fence.Store(reply.Fence)
			g.first, g.last = reply.Fence, reply.FenceEnd
		}
		return nil
	}
	reply, err := call(ctx, l, limit,
		func(ctx context.Context) (driver.RaiseReply, error) { return l.driver.Raise(ctx, request) },
		func(reply driver.RaiseReply, err error) { _ = settle(reply, err) })
	switch {
	case err == calls.ErrLeft:
		return left("raise token", ctx)
	case calls.Unsettled(err): // if the lease has ended, its end is the error
		return cmp.Or(le.gone(), failedRead("raise token", err))
	}
	if err := settle(reply, err); err != nil {
		return err
	}
	if err := le.Err(); err != nil {
		return err
	}
	if le.Fence() <= above { // a driver that does not know floors
		return unavailable("raise token", fmt.Errorf(
			"the service granted %d, but more than %d was asked for", le.Fence(), above))
	}
	return nil
}

func badFloor(above int64) error {
	return invalidOption("the fencing token cannot rise above %d, which must be from 0 to a year ahead of "+
		"the lock service's clock; the token stays as it is; check the mark of the store, which may be damaged, "+
		"and the clock of the lock service", above)
}
