//go:build beluga

// These tests use Beluga's own Runner and agents, which the contract lacks: make test-beluga.

package belugarunner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
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
			synctest.Test(t, func(t *testing.T) {
				slow := newThinks()
				r := newRunner(t, test(slow), "mem://")
				ctx, cancel := context.WithCancel(t.Context())
				go func() { <-slow.begun; cancel() }()
				if _, err := say(t, ctx, r, "s", "q"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				time.AfterFunc(time.Minute, func() { close(slow.goOn) })
				if took := freeAfter(t, r, "s"); took != time.Minute {
					t.Errorf("the session is free after %s, and the agent ended after a minute", took)
				}
				said(t, r, "s", "")
			})
		})
	}
}

// A team of Beluga is streamed, and stopped while its second member works. A repetition gets the first one's answer.
func TestStop_O_onBeluga_team(t *testing.T) {
	both(t, func(t *testing.T, deaf bool) {
		synctest.Test(t, func(t *testing.T) {
			slow := newThinks()
			member := agent.New("own", agent.WithPlanner(planner(func(ctx context.Context, input string) (string, error) {
				if !deaf {
					close(slow.goOn)
					defer func() { <-ctx.Done() }()
				}
				return slow.agent(ctx, input)
			})))
			team := runtime.NewTeam(runtime.WithAgents(answers(echo), member))
			r := newKeeper(t, team, belugarunner.Options{Stream: true})
			ended := begins(t, r, "s", named("1", "q"))
			<-slow.begun
			must(t, r.StopSession(t.Context(), "s", time.Second))
			(<-ended).is(t, "text:answer to q done: done:answer to q(stopped)")
			tells(t, r, "s", named("1", "q"), replayed+"(stopped)")
			if deaf {
				close(slow.goOn)
			}
		})
	})
}

// A hook of Beluga refuses the call of a tool without an event.
func TestHistory_onBeluga_hooks(t *testing.T) {
	m := &asked{}
	order := tool.NewFuncTool("order", "an order", func(context.Context, struct {
		ID string `json:"id"`
	}) (*tool.Result, error) {
		panic("its call is refused")
	})
	refuses := agent.WithHooks(agent.Hooks{OnToolCall: func(context.Context, agent.ToolCallInfo) error { return errAgent }})
	r := newRunner(t, agent.New("agent", agent.WithLLM(belugarunner.History(m)), agent.WithTools([]tool.Tool{order}), refuses), "mem://")
	talk(t, r, "s", "my order?", "bye")
	m.got(t, `human my order?|ai [{1 order {"id":"7"}}]|tool no result: the call was refused, or a plugin has removed its result|ai re `+
		errAgent.Error()+"|human bye")
}
