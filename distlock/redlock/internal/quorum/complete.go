package quorum

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// completeAfter is how long after a grant the nodes that have not accepted are asked again. Most of
// them have refused because of a Release that was under way.
const completeAfter = 50 * time.Millisecond

// completeLater has the other nodes accept a grant that not all have accepted, some time later.
// ⚑ A lease on a bare quorum would end with one node more.
func (a *attempt) completeLater(p *poll[driver.AcquireReply]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if !a.votes[i].holds && !a.over {
			a.complete = time.AfterFunc(min(completeAfter, a.req.TTL/4), a.completeNow)
			return
		}
	}
}

// completeNow asks the nodes that have not accepted.
func (a *attempt) completeNow() {
	for _, n := range a.q.nodes {
		a.mu.Lock()
		needs := !a.over && !a.votes[n.index].holds
		a.mu.Unlock()
		if needs && !n.full() {
			n.enter()
			a.q.background(func() {
				ctx, cancel := context.WithTimeout(a.q.life, limit(a.req.TTL))
				defer cancel()
				n.leave(a.retake(ctx, n, a.req.TTL))
			})
		}
	}
}

// retake has a node accept the grant, under a token above all that the node may have: the attempts
// of waiters raise the last token of a node that is free. It reports whether the node has answered.
//
// ⚑ No request follows a Release, or an answer that the grant is lost.
func (a *attempt) retake(ctx context.Context, n *node, ttl time.Duration) (answered bool) {
	if token, _ := a.tokens(); token == 0 {
		return true
	}
	floor := a.q.now()
	for range retakes {
		token := a.aboveAll(floor)
		if !a.retaking(n, token+block) {
			return true
		}
		req := a.req
		req.Fence, req.FenceEnd, req.TTL = token, token+block, ttl
		reply, err := a.acquire(ctx, n, req)
		a.sent(n)
		switch {
		case err != nil:
			return false
		case reply.Outcome == driver.TooLow && reply.Last <= a.q.now()+farAhead.Microseconds():
			floor = reply.Last + 1
		case reply.Outcome != driver.Busy || reply.State.Age > racing:
			return true
		case !a.q.pause(time.Millisecond + rand.N(9*time.Millisecond)): // the attempt of a waiter has the node
			return true
		}
	}
	return true
}

// retakes bounds how often a node is asked.
const retakes = 10

// retaking notes that an Acquire is under way, if it is the only one of the node.
func (a *attempt) retaking(n *node, end int64) bool {
	a.mu.Lock()
	under := a.votes[n.index].pending > 0
	a.mu.Unlock()
	return !under && a.sending(n, end)
}
