package belugamemory

import (
	"context"
	"iter"

	"github.com/lookatitude/beluga-ai/v2/agent"
)

// WrapAgent makes the agent of a Runner whose Run is locked, see [LockRun]. A cancelled run then
// frees its session as soon as its agent has ended, and stores nothing after that. A panic of the
// agent first releases the lease, and then goes on. Runs that are not cancelled, and calls outside
// of a run, are as without it.
//
// Wrap the agent that the Runner is given, such as a runtime.Team, not its members. WrapAgent is an
// agent.Middleware.
func WrapAgent(inner agent.Agent) agent.Agent { return wrappedAgent{inner} }

type wrappedAgent struct{ agent.Agent }

func (a wrappedAgent) Invoke(ctx context.Context, input string, opts ...agent.Option) (answer string, err error) {
	asAgent(ctx, func(ctx context.Context) { answer, err = a.Agent.Invoke(ctx, input, opts...) })
	return answer, err
}

func (a wrappedAgent) Stream(ctx context.Context, input string, opts ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		asAgent(ctx, func(ctx context.Context) { a.Agent.Stream(ctx, input, opts...)(yield) })
	}
}

type agentKey struct{}

// asAgent does the work of an agent as a part of its run, unless another wrapped agent does that
// already. ⚑ It does not recover: the trace of a panic stays that of the agent.
func asAgent(ctx context.Context, work func(ctx context.Context)) {
	r := runOf(ctx)
	if r == nil || ctx.Value(agentKey{}) == r {
		work(ctx)
		return
	}
	panics := true
	r.busy.Store(true)
	defer func() { r.rests(ctx, panics) }()
	work(context.WithValue(ctx, agentKey{}, r))
	panics = false
}
