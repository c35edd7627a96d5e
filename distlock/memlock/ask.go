package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Ask implements driver.Asker.
func (t *table) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	return call(ctx, t, func(now time.Duration) (reply driver.AskReply, err error) {
		if req.Floor > (now + driver.FloorAhead).Microseconds() {
			return reply, fmt.Errorf("memlock: %w", driver.ErrFloor)
		}
		r := t.record(req.Name, now)
		reply.State, reply.Fence, reply.Own = r.state(now), r.shown(), r.fence
		reply.Asked = r.heldUnder(req.Fence) || r.isFor(req.Work)
		if r.held && !reply.Asked {
			return reply, nil
		}
		r.last = max(r.last+1, now.Microseconds(), req.Floor)
		reply.Fence = r.last
		if reply.Asked {
			r.asked = r.last
			for asked := range t.asks {
				(*asked)(r.req.Owner)
			}
		}
		return reply, nil
	})
}

// NotifyAsks implements driver.Asker.
func (t *table) NotifyAsks(_ context.Context, _ string, asked func(owner string)) (func(), error) {
	t.withLock(func() { t.asks[&asked] = true })
	return func() { t.withLock(func() { delete(t.asks, &asked) }) }, nil
}
