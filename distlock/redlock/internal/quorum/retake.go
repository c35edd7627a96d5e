package quorum

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// completeAfter is how long after a grant the nodes that have refused are asked again.
	completeAfter = 50 * time.Millisecond
	// retakes bounds how often a node is asked.
	retakes = 10
)

// retake has a node accept the grant, under a token above all that the node may have: the attempts
// of waiters raise the last token of a node that is free.
//
// ⚑ No request follows a Release, or an answer that the grant is lost.
func (a *attempt) retake(n *node, ttl time.Duration) {
	if !a.retaking(n) {
		return
	}
	defer a.retaken(n)
	floor := a.q.now()
	for range retakes {
		token := a.aboveAll(floor)
		if !a.sending(n, token+block) {
			return
		}
		ctx, cancel := context.WithTimeout(a.q.life, limit(ttl))
		reply, err := a.acquire(ctx, n, token, ttl)
		cancel()
		switch {
		case err != nil:
			return
		case reply.Outcome == driver.TooLow && reply.Last <= a.q.now()+farAhead.Microseconds():
			floor = reply.Last + 1
		case reply.Outcome != driver.Busy || reply.State.Age > racing:
			return
		case !a.q.pause(time.Millisecond + rand.N(9*time.Millisecond)): // the attempt of a waiter has the node
			return
		}
	}
}

// retaking begins a re-take of a grant, if it is the only one of the node.
func (a *attempt) retaking(n *node) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	if a.token == 0 || v.retakes {
		return false
	}
	v.retakes = true
	return true
}

func (a *attempt) retaken(n *node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.votes[n.index].retakes = false
}
