package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/belugalock/belugalock/distlock/driver"
)

var errLateExact = errors.New("an exact extend may yet shorten the grant on this node")

// Extend implements driver.Driver.
func (q *quorum) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	var all sync.WaitGroup
	for i, req := range reqs {
		all.Go(func() { replies[i].Held, replies[i].Err = q.extend(ctx, req) })
	}
	all.Wait()
	return replies
}

// extend prolongs one grant. A node that does not hold the grant is asked to accept it, too.
// ⚑ Not before the decision: a grant that is lost must not come back.
func (q *quorum) extend(ctx context.Context, req driver.ExtendRequest) (held bool, err error) {
	if err := q.check(ctx, req.TTL); err != nil {
		return false, err
	}
	k := key{req.Name, req.Owner}
	a := q.find(k, req.TTL)
	req.Owner = a.req.Owner
	p := newPoll(q, ctx, limit(req.TTL))
	defer close(p.decided)
	for _, n := range q.nodes {
		p.expect(n)
		// ⚑ Before another Extend can be sent: this one may be the later one at the node.
		counts := a.extending(n, req.Exact)
		lost := false
		p.ask(n, func(ctx context.Context) (Reply, error) {
			reply, err := n.Extend(ctx, req)
			a.extended(n, req.Exact, err)
			lost = err == nil && reply.Outcome == NotHeld
			if err == nil && !lost && !counts {
				err = errLateExact
			}
			return reply, err
		}, func() {
			if lost {
				a.retake(n, req.TTL)
			}
		})
	}
	// ⚑ A young node does not count as held. A node that says "not held" counts in each case.
	agreed, effects, err := p.agree(ctx, false, func(a *answer) bool { return !a.young })
	switch {
	case err == nil && agreed == yes:
		return true, nil
	case err == nil && agreed == no: // ⚑ no request follows that could take it back
		q.noteLoss(k, a)
		return false, nil
	}
	// ⚑ An exact one may have shortened the grant on a few nodes.
	return false, p.failure(err, effects > len(q.nodes)-q.size || req.Exact && effects > 0)
}

// extending notes that an Extend is under way. It reports whether its answer counts.
// ⚑ An exact Extend without an answer may arrive at the node after this one, and shorten the grant.
func (a *attempt) extending(n *node, exact bool) (counts bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[n.index]
	counts = v.exactExtends == 0
	if exact {
		v.exactExtends++
	}
	return counts
}

// extended notes the end of an Extend.
func (a *attempt) extended(n *node, exact bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if exact && !driver.MayHaveEffect(err) {
		a.votes[n.index].exactExtends--
	}
}
