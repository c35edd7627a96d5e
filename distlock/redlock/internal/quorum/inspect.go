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
	p := newPoll(q, ctx, callLimit, inspectWord)
	defer close(p.decided)
	p.leastWait = forAll
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (State, error) {
			state, err := n.Inspect(ctx, name)
			return ofGrant(state), err
		}, nil)
	}
	var state driver.State
	var known bool
	err := p.wait(ctx, func(answers []answer[State], timeUp bool) bool {
		state, known = inspect(answers, q.size)
		return !slices.ContainsFunc(answers, func(a answer[State]) bool {
			return a.pending && !(known && (timeUp || a.silent))
		})
	})
	if err != nil || !known {
		return driver.State{}, p.failure(err, false)
	}
	return state, nil
}

func inspectWord(state State) string {
	if state.Held {
		return "held"
	}
	return "free"
}
