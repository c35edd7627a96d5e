//go:build beluga

package belugarunner_test

import (
	"context"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// A hook of Beluga refuses the call of a tool without an event, and a pipeline shows no events of its members.
func TestHistory_onBeluga_hooksAndPipelines(t *testing.T) {
	refuses := agent.WithHooks(agent.Hooks{OnToolCall: func(context.Context, agent.ToolCallInfo) error { return errAgent }})
	returnsNil := tool.NewFuncTool("order", "an order", func(context.Context, struct {
		ID string `json:"id"`
	}) (*tool.Result, error) {
		return nil, nil
	})
	const call = `human my order?|ai [{1 order {"id":"7"}}]|tool `
	for name, test := range map[string]struct {
		agent func(m *asked) agent.Agent
		want  string
	}{
		"refused": {func(m *asked) agent.Agent {
			return agent.New("agent", agent.WithLLM(belugarunner.History(m)), agent.WithTools([]tool.Tool{returnsNil}), refuses)
		}, call + "no result: the call was refused, or a plugin has removed its result|ai re " + errAgent.Error() + "|human bye"},
		"nil": {func(m *asked) agent.Agent {
			return agent.New("agent", agent.WithLLM(belugarunner.History(m)), agent.WithTools([]tool.Tool{returnsNil}))
		}, call + "|ai re |human bye"},
		"pipeline": {func(m *asked) agent.Agent {
			return runtime.NewTeam(runtime.WithAgents(remembering(m, "Friday")))
		}, "human my order?|ai re Friday|human bye"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &asked{}
			r := newRunner(t, test.agent(m), "mem://", belugarunner.Options{Namespace: "beluga " + name})
			talk(t, r, "s", "my order?", "bye")
			m.got(t, test.want)
		})
	}
}
