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
		// The attempt of a waiter has the node.
		case sleep(a.q.life, time.Millisecond+rand.N(9*time.Millisecond)) != nil:
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
// the grant. It returns 0 without a grant, beside another Acquire of the node, and during a Raise.
// ⚑ Such a re-take could be above the Raise, and hide it.
func (a *attempt) retakeTokens(n *node, floor int64) (token, grant int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	if a.over || a.token == 0 || v.pending > 0 || a.raises > 0 {
		return 0, 0
	}
	v.pending++
	token = max(floor, a.highest+1)
	a.highest = token + Block
	return token, a.token
}
