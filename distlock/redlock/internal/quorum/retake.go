package quorum

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"
)

const (
	// completeAfter is how long after a grant the nodes that have refused are asked again.
	completeAfter = 50 * time.Millisecond
	// retakes bounds how often a node is asked.
	retakes = 10
	// retakenKey is a key in the metadata of a re-taken node. Its value is the token of the re-take and
	// that of the grant.
	retakenKey = "belugalock.retaken"
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
	floor := a.q.clock()
	for range retakes {
		token, grant := a.retakeTokens(n, floor)
		if token == 0 {
			return
		}
		req := a.req
		req.Token, req.TTL, req.Metadata = token, ttl, map[string]string{retakenKey: fmt.Sprint(token, grant)}
		maps.Copy(req.Metadata, a.req.Metadata)
		ctx, cancel := context.WithTimeout(a.q.life, limit(ttl))
		reply, err := a.acquire(ctx, n, req)
		cancel()
		last := reply.Last
		switch {
		case err != nil:
			return
		case reply.Outcome == TooLow && last >= token && last <= a.q.clock()+farAhead.Microseconds():
			floor = last + 1
		case reply.Outcome != Busy || reply.State.Age > racing:
			return
		case !a.q.pause(time.Millisecond + rand.N(9*time.Millisecond)): // the attempt of a waiter has the node
			return
		}
	}
}

// ofGrant shows a grant under its own token, which a quorum has reserved. ⚑ The token of a re-take is
// on one node only: the next holder may have a lower one. After a Raise, the node has another token
// than that of the re-take, and shows it.
func ofGrant(s State) State {
	if tokens, ok := s.Metadata[retakenKey]; ok {
		var retake, grant int64
		if _, err := fmt.Sscan(tokens, &retake, &grant); err == nil && retake == s.Fence {
			s.Fence = grant
		}
		delete(s.Metadata, retakenKey)
	}
	return s
}

// retakeTokens notes that a re-take is under way, as sending does. It returns its token and that of
// the grant, or 0 if the attempt is over, or during a Raise.
// ⚑ Such a re-take could be above the Raise, and hide it.
func (a *attempt) retakeTokens(n *node, floor int64) (token, grant int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	token = max(floor, a.highest+1)
	if a.raises > 0 || !a.sendingLocked(n, token+Block) {
		return 0, 0
	}
	return token, a.token
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
