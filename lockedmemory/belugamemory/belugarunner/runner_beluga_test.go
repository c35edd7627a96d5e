//go:build beluga

// These tests use Beluga's own Runner and agents, which the contract lacks: make test-beluga.

package belugarunner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"

	"github.com/belugalock/belugalock/distlock"
)

// planner answers with the result of a function.
type planner func(ctx context.Context, input string) (string, error)

func (p planner) Plan(ctx context.Context, state agent.PlannerState) ([]agent.Action, error) {
	answer, err := p(ctx, state.Input)
	return []agent.Action{{Type: agent.ActionFinish, Message: answer}}, err
}

func (p planner) Replan(ctx context.Context, state agent.PlannerState) ([]agent.Action, error) {
	return p.Plan(ctx, state)
}

// failing is a model that fails after it was cancelled and the test has released it.
func (a *thinks) failing(ctx context.Context, _ string) (string, error) {
	close(a.begun)
	<-ctx.Done()
	<-a.goOn
	return "", ctx.Err()
}

// A Runner of New frees the session of a cancelled run with the end of its worker, whatever the agent is.
func TestNew_L_agentsOfBeluga(t *testing.T) {
	own := func(slow *thinks) agent.Agent { return agent.New("own", agent.WithPlanner(planner(slow.failing))) }
	for name, test := range map[string]func(slow *thinks) agent.Agent{
		"an agent": own,
		"a team": func(slow *thinks) agent.Agent {
			return runtime.NewTeam(runtime.WithAgents(answers(echo), own(slow)))
		},
		"a team at once": func(slow *thinks) agent.Agent {
			return runtime.NewTeam(runtime.WithAgents(answers(echo), own(slow)), runtime.WithPattern(runtime.ScatterGatherPattern(answers(echo))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onMem(t, func(t *testing.T) {
				slow := newThinks()
				r := newRunner(t, test(slow), "mem://")
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-slow.begun; cancel() }()
				if _, err := say(t, ctx, r, "s", "q"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				time.AfterFunc(time.Minute, func() { close(slow.goOn) })
				start := time.Now()
				lease, err := r.Locker().Acquire(t.Context(), "s", distlock.WithWait(time.Hour))
				must(t, err)
				must(t, lease.Release(t.Context()))
				if took := time.Since(start); took != time.Minute {
					t.Errorf("the session is free after %s, and the agent ended after a minute", took)
				}
				if got := said(t, r, "s"); got != "" {
					t.Errorf("the turns %q", got)
				}
			})
		})
	}
}
