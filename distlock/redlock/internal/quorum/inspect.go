package quorum

import (
	"context"
	"slices"

	"github.com/belugalock/belugalock/distlock/driver"
)

// forAll is how long the other nodes have at least when a quorum has answered.
const forAll = 2 * raceWait

// Inspect implements driver.Driver. It waits for all nodes that are not silent: each shows another
// TTL.
func (q *quorum) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if ctx.Err() != nil {
		return driver.State{}, notDone(ctx)
	}
	p := newPoll(q, ctx, callLimit)
	defer close(p.decided)
	p.leastWait = forAll
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (Reply, error) {
			reply, err := n.Inspect(ctx, name)
			reply.State = ofGrant(reply.State)
			return reply, err
		}, nil)
	}
	var state driver.State
	var known bool
	err := p.wait(ctx, func(answers []answer, timeUp bool) bool {
		state, known = inspect(answers, q.size)
		return !slices.ContainsFunc(answers, func(a answer) bool {
			return a.pending && !(known && (timeUp || a.silent))
		})
	})
	if err != nil || !known {
		return driver.State{}, p.failure(err, false)
	}
	return state, nil
}
