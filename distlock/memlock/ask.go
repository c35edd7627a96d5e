package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// asks is a listener for the asks of a namespace.
type asks struct {
	namespace string
	asked     func(is func(driver.Name) bool)
}

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
			for listener := range t.asks {
				if listener.namespace == req.Name.Namespace {
					listener.asked(func(name driver.Name) bool { return name == req.Name })
				}
			}
		}
		return reply, nil
	})
}

// NotifyAsks implements driver.Asker.
func (t *table) NotifyAsks(_ context.Context, namespace string, asked func(is func(driver.Name) bool)) (func(), error) {
	listener := &asks{namespace, asked}
	t.withLock(func() { t.asks[listener] = true })
	return func() { t.withLock(func() { delete(t.asks, listener) }) }, nil
}
