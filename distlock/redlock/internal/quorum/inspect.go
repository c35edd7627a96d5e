package quorum

import (
	"context"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Inspect implements driver.Driver. It waits for all nodes that answer in time: a quorum alone does not
// show that a name is free.
func (q *quorum) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if ctx.Err() != nil {
		return driver.State{}, notDone(ctx)
	}
	p := newPoll(q, ctx, longest, inspectWord)
	defer p.done()
	for _, n := range q.nodes {
		p.expect(n)
		p.ask(n, func(ctx context.Context) (driver.State, error) { return n.Driver.Inspect(ctx, name) }, nil)
	}
	err := p.wait(ctx, func(_ []answer[driver.State], final bool) bool { return final })
	p.mu.Lock()
	state, ok := inspect(p.answers, q.size)
	p.mu.Unlock()
	if err != nil || !ok {
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
