package distlock

import (
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
	asked := time.Now()
	if le.Fence() > above {
		return le.Err()
	}
	g, l := le.grant, le.grant.locker
	var reply driver.RaiseReply
	return le.operate(ctx, "raise token", g.ttl, &Operation{Name: OpRaiseToken, TTL: g.ttl}, change{
		send: func(ctx context.Context) (held bool, err error) {
			reply, err = l.driver.Raise(ctx, driver.RaiseRequest{Name: g.name, Owner: g.owner, Floor: above + 1})
			if err == nil && reply.Held { // ⚑ with its old token, waiters from after a Stop would end with it
				l.queues.Each(le.Key(), func(waiting *acquisition) { waiting.noteAwaited(reply.Fence-1, asked) })
			}
			return reply.Held, err
		},
		apply: func(trust.Moment) error {
			if le.Fence() < reply.Fence {
				le.fence.Store(reply.Fence)
				le.awaited.Store(0)
			}
			if le.Fence() <= above { // a driver that does not know floors
				return unavailable("raise token", fmt.Errorf(
					"the lock service granted %d, but more than %d was asked for", le.Fence(), above))
			}
			return nil
		},
		failed: func(ctx context.Context, err error) error { // a higher token in the backend alone does no harm
			switch {
			case errors.Is(err, driver.ErrFloor):
				return badFloor(above)
			case ctx.Err() != nil:
				return callerLeft("raise token", ctx)
			}
			return failedRead("raise token", err)
		},
	})
}

func badFloor(above int64) error {
	return invalidOption("the fencing token cannot rise above %d, which must be from 0 to a year ahead of "+
		"the lock service's clock; the token stays as it is; check the mark of the store, which may be damaged, "+
		"and the clock of the lock service", above)
}
