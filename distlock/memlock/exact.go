package memlock

import (
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// keepTokens is how long the table remembers the last token of a free name beyond the moment that
// the token stands for. A proposal may be late by less.
const keepTokens = 2 * time.Second

// acquireExactly grants the tokens that the request states, or none. docs/design/driver.md lists
// the cases.
func (t *table) acquireExactly(l *lock, req driver.AcquireRequest, now time.Time) (reply driver.AcquireReply) {
	clock := t.clock(now)
	mine, held := l.owner == req.Owner, l.heldAt(now)
	above := req.Fence > max(l.last, clock-keepTokens.Microseconds())
	again := mine && req.Fence == l.fence && req.FenceEnd == l.last
	switch {
	case held && !mine:
		reply = t.busy(l, now)
	case !again && !above:
		reply.Outcome = driver.TooLow
	case held && again:
		l.prolong(req.TTL, now)
		reply = l.grant()
	case !held && l.waitsBefore(req, now):
		reply = t.busy(l, now)
	default:
		l.fence, l.last = req.Fence, req.FenceEnd
		reply = t.hold(l, req, now)
	}
	reply.Last, reply.Clock = l.last, clock
	return reply
}
