package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// forAll is how long Inspect waits for all nodes.
const forAll = 200 * time.Millisecond

// Inspect implements driver.Driver. It waits for all nodes that answer in time: each shows another
// TTL.
func (q *quorum) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if ctx.Err() != nil {
		return driver.State{}, notDone(ctx)
	}
	p := newPoll(q, ctx, callLimit, inspectWord)
	defer p.done()
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (driver.State, error) { return n.Driver.Inspect(ctx, name) }, nil)
	}
	var state driver.State
	var decided agreement
	decide := func(answers []answer[driver.State], all bool) bool {
		state, decided = inspect(answers, q.size)
		return decided != awaiting && !(all && slices.ContainsFunc(answers, func(a answer[driver.State]) bool {
			return a.pending && !a.silent
		}))
	}
	timely, cancel := context.WithTimeout(ctx, forAll)
	defer cancel()
	err := p.wait(timely, func(answers []answer[driver.State], _ bool) bool { return decide(answers, true) })
	if err != nil {
		err = p.wait(ctx, func(answers []answer[driver.State], _ bool) bool { return decide(answers, false) })
	}
	if err != nil || decided != yes {
		return driver.State{}, p.failure(err, false)
	}
	return state, nil
}

func inspectWord(state driver.State) string {
	if state.Held {
		return "held"
	}
	return "free"
}
