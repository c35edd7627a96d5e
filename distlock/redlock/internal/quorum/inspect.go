package quorum

import (
	"context"
	"slices"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Inspect implements driver.Driver. It waits for all nodes that answer in time: each shows another TTL.
func (q *quorum) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if ctx.Err() != nil {
		return driver.State{}, notDone(ctx)
	}
	p := newPoll(q, ctx, longest, inspectWord)
	defer p.done()
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (driver.State, error) {
			state, err := n.Driver.Inspect(ctx, name)
			return asGranted(state), err
		}, nil)
	}
	var state driver.State
	var decided agreement
	err := p.wait(ctx, func(answers []answer[driver.State], slow bool) bool {
		open := slices.ContainsFunc(answers, func(a answer[driver.State]) bool { return a.pending })
		state, decided = inspect(answers, q.size)
		return !open || slow && decided != unsure
	})
	if err != nil || decided != yes {
		return driver.State{}, p.failure(err, false)
	}
	state.Owner = ""
	return state, nil
}

func inspectWord(state driver.State) string {
	if state.Held {
		return "held"
	}
	return "free"
}
