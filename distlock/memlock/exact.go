package memlock

import (
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// keepTokens is how long the table remembers the last token of a free name beyond the moment the token
// stands for. A proposal may be late by less.
const keepTokens = 2 * time.Second

// acquireExactly grants the tokens that the request states, or none. docs/design/driver.md lists the cases.
func (t *table) acquireExactly(l *lock, req driver.AcquireRequest, now time.Time) (reply driver.AcquireReply, err error) {
	clock := t.clock(now)
	if err := t.checkFloor(req.Fence, now); err != nil {
		return reply, err
	}
	mine, held := l.owner == req.Owner, l.heldAt(now)
	above := req.Fence > max(l.last, clock-keepTokens.Microseconds())
	again := mine && req.Fence == l.fence && req.FenceEnd == l.last
	first := l.first(now)
	switch {
	case l.released == req.Owner || now.Before(l.void[req.Owner]):
		reply.Outcome = driver.Void
	case held && !mine:
		reply.Outcome, reply.State = driver.Busy, l.state(now)
	case !again && !above:
		reply.Outcome = driver.TooLow
	case held && again:
		l.prolong(req.TTL, now)
		reply = l.grant()
	case !held && first != nil && first.before(req):
		t.handOver(l, now)
		reply.Outcome, reply.State = driver.Busy, l.state(now)
	default:
		l.fence, l.last = req.Fence, req.FenceEnd
		reply = t.hold(l, req, now)
	}
	reply.Last, reply.Clock = l.last, clock
	return reply, nil
}
