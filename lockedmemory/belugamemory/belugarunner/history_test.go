package belugarunner_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// asked is a model that keeps the requests as text. It calls the tool for a question with "order".
type asked struct {
	mu       sync.Mutex
	requests []string
	bound    int
}

func (m *asked) Generate(_ context.Context, messages []schema.Message, _ ...llm.GenerateOption) (*schema.AIMessage, error) {
	var lines []string
	for _, message := range messages {
		line := string(message.GetRole()) + " " + belugamemory.Codec{}.Text(message)
		if ai, ok := message.(*schema.AIMessage); ok && ai.ToolCalls != nil {
			line += fmt.Sprint(ai.ToolCalls)
		}
		lines = append(lines, line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, strings.Join(lines, "|"))
	last := messages[len(messages)-1]
	text := belugamemory.Codec{}.Text(last)
	if last.GetRole() == schema.RoleHuman && strings.Contains(text, "order") {
		return &schema.AIMessage{ToolCalls: []schema.ToolCall{{ID: "1", Name: "order", Arguments: `{"id":"7"}`}}}, nil
	}
	return schema.NewAIMessage("re " + text), nil
}

func (m *asked) Stream(ctx context.Context, messages []schema.Message, _ ...llm.GenerateOption) iter.Seq2[schema.StreamChunk, error] {
	return func(yield func(schema.StreamChunk, error) bool) {
		answer, err := m.Generate(ctx, messages)
		yield(schema.StreamChunk{Delta: answer.Text()}, err)
	}
}

func (m *asked) BindTools([]schema.ToolDefinition) llm.ChatModel { m.bound++; return m }
func (m *asked) ModelID() string                                 { return "asked" }

// got checks the newest request.
func (m *asked) got(t testing.TB, want string) {
	t.Helper()
	if last := m.requests[len(m.requests)-1]; last != want {
		t.Errorf("the model got\n%q\nwant\n%q", last, want)
	}
}

// remembering makes an agent with a tool, whose model has a History.
func remembering(m llm.ChatModel, result string) agent.Agent {
	return agent.New("agent", agent.WithLLM(belugarunner.History(m)), agent.WithTools([]tool.Tool{
		tool.NewFuncTool("order", "an order", func(context.Context, struct {
			ID string `json:"id"`
		}) (*tool.Result, error) {
			return tool.TextResult(result), nil
		})}))
}

// modelGets makes turns with an agent that remembers, and checks the newest request to its model.
func modelGets(t *testing.T, result string, opts belugarunner.Options, want string, inputs ...string) {
	t.Helper()
	m := &asked{}
	opts.Namespace = t.Name()
	talk(t, newRunner(t, remembering(m, result), "mem://", opts), "s", inputs...)
	m.got(t, want)
}

// Two instances share the history, with the calls and results of tools.
func TestHistory_reachesTheModelOfTheNextInstance(t *testing.T) {
	for name, url := range map[string]string{"in process": "mem://", "on Redis": servers.SharedServer().URL()} {
		t.Run(name, func(t *testing.T) {
			first, second := &asked{}, &asked{}
			a := newRunner(t, remembering(first, "Friday"), url, belugarunner.Options{Namespace: t.Name()})
			b := newRunner(t, remembering(second, "Friday"), url, belugarunner.Options{Namespace: t.Name()})
			talk(t, a, "s", "my order?")
			talk(t, b, "s", "thanks")
			const turn = `human my order?|ai [{1 order {"id":"7"}}]|tool Friday|ai re Friday|human thanks`
			if second.got(t, turn); first.bound == 0 {
				t.Error("the model got no tools")
			}
			talk(t, a, "s", "bye") // the history was not stored again
			first.got(t, turn+"|ai re thanks|human bye")
			talk(t, a, "another", "hi")
			first.got(t, "human hi")
		})
	}
}

// asks is an agent that asks its model itself.
func asks(m llm.ChatModel, stream bool) answers {
	return func(ctx context.Context, input string) (text string, err error) {
		messages := []schema.Message{schema.NewSystemMessage("be kind"), schema.NewHumanMessage(input)}
		if !stream {
			answer, err := m.Generate(ctx, messages)
			if err != nil {
				return "", err
			}
			return answer.Text(), nil
		}
		for chunk, err := range m.Stream(ctx, messages) {
			if err != nil {
				return "", err
			}
			text += chunk.Delta
		}
		return text, nil
	}
}

func TestHistory_followsTheSystemMessage_withinTheBudget(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		m := &asked{}
		// Each turn has two messages of one or two tokens, and 4 for each message.
		options := belugarunner.Options{History: 23, Namespace: fmt.Sprint(t.Name(), stream)}
		assistant, session := asks(belugarunner.History(m), stream), "s"
		if stream { // a service that returns all turns
			all := runtime.NewInMemorySessionService()
			created := must2(all.Create(t.Context(), assistant.ID()))
			session, options.SessionService = created.ID, all
		}
		r := newRunner(t, assistant, "mem://", options)
		talk(t, r, session, "1", "2", "3", "4")
		m.got(t, "system be kind|human 2|ai re 2|human 3|ai re 3|human 4")
	}
}

// The request of an agent may have system messages alone.
func TestHistory_systemMessagesAlone_stayFirst(t *testing.T) {
	t.Parallel()
	m := &asked{}
	model := belugarunner.History(m)
	r := newRunner(t, answers(func(ctx context.Context, input string) (string, error) {
		answer, err := model.Generate(ctx, []schema.Message{schema.NewSystemMessage(input)})
		return answer.Text(), err
	}), "mem://", belugarunner.Options{Namespace: t.Name()})
	talk(t, r, "s", "one", "two")
	m.got(t, "system two|human one|ai re one")
}

// The calls of tools count: otherwise long arguments would exceed the budget.
func TestHistory_callsCountInTheBudget(t *testing.T) {
	for tokens, want := range map[int]string{25: "human hi", 26: `human my order?|ai [{1 order {"id":"7"}}]|tool Fri|ai re Fri|human hi`} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			modelGets(t, "Fri", belugarunner.Options{History: tokens}, want, "my order?", "hi")
		})
	}
}

// changing makes Options with a plugin that changes the events of a turn.
func changing(change func(s *runtime.Session, events []agent.Event) []agent.Event) belugarunner.Options {
	return belugarunner.Options{Plugins: []runtime.Plugin{&hooks{
		after: func(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
			return change(s, events), nil
		},
	}}}
}

func TestHistory_isAsPluginsLeaveIt(t *testing.T) {
	opts := changing(func(_ *runtime.Session, events []agent.Event) []agent.Event { // removes those of tools
		return slices.DeleteFunc(events, func(e agent.Event) bool { return e.ToolResult != nil })
	})
	opts.Plugins = append(opts.Plugins, &hooks{
		before: func(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
			if len(s.Turns) > 1 {
				s.Turns = s.Turns[1:]
			}
			return input, nil
		},
	})
	const call = `ai [{1 order {"id":"7"}}]|tool no result: the call was refused, or a plugin has removed its result|`
	modelGets(t, "secret", opts, "human my order?|"+call+"ai re secret|human bye", "one", "my order?", "bye")
}

func TestHistory_toolWithBytes_isStoredAsJSONShowsIt(t *testing.T) {
	answerless := changing(func(_ *runtime.Session, events []agent.Event) []agent.Event {
		for i := range events {
			events[i].Text = ""
		}
		return events
	})
	modelGets(t, "a\xffb", answerless, "human my order?|ai [{1 order {\"id\":\"7\"}}]|tool a\ufffdb|human bye", "my order?", "bye")
}

// toolEvent is an event of the tools of an agent.
func toolEvent(kind agent.EventType, of, call string, result *tool.Result) agent.Event {
	e := agent.Event{Type: kind, AgentID: of, ToolResult: result}
	if call != "" {
		e.ToolCall = &schema.ToolCall{ID: call}
	}
	return e
}

// The call of one agent does not get the result of another.
func TestHistory_agentsAtOnce_keepTheirResults(t *testing.T) {
	atOnce := changing(func(_ *runtime.Session, events []agent.Event) []agent.Event {
		return append([]agent.Event{toolEvent(agent.EventToolCall, "a", "1", nil), toolEvent(agent.EventToolCall, "b", "2", nil),
			toolEvent(agent.EventToolResult, "b", "", tool.TextResult("for b")),
			toolEvent(agent.EventToolResult, "a", "", tool.TextResult("for a"))}, events...)
	})
	modelGets(t, "", atOnce, "human one|ai [{1  }]|tool for a|ai [{2  }]|tool for b|ai re one|human bye", "one", "bye")
}

func TestHistory_everyCall_hasItsResult(t *testing.T) {
	t.Parallel()
	called := func(id string) agent.Event { return toolEvent(agent.EventToolCall, "a", id, nil) }
	result := func(id string, result *tool.Result) agent.Event {
		return toolEvent(agent.EventToolResult, "a", id, result)
	}
	const none = " no result: the call was refused, or a plugin has removed its result"
	one, two := tool.TextResult("one"), tool.TextResult("two")
	for name, test := range map[string]struct {
		events []agent.Event
		want   string
	}{
		"empty":           {[]agent.Event{called("1"), result("", &tool.Result{})}, "1:"},
		"nil":             {[]agent.Event{called("1"), result("", nil)}, "1:"},
		"an error":        {[]agent.Event{called("1"), result("", tool.ErrorResult(errAgent))}, "1: " + errAgent.Error()},
		"refused":         {[]agent.Event{called("1")}, "1:" + none},
		"the first one":   {[]agent.Event{called("1"), called("2"), result("", two)}, "1:" + none + ";2: two"},
		"the last one":    {[]agent.Event{called("1"), result("", one), called("2")}, "1: one;2:" + none},
		"together":        {[]agent.Event{called("1"), called("2"), result("", one), result("", two)}, "1: one;2: two"},
		"by ID":           {[]agent.Event{called("1"), called("2"), result("2", two), result("1", one)}, "1: one;2: two"},
		"one by ID":       {[]agent.Event{called("1"), called("2"), result("2", two), result("", one)}, "1: one;2: two"},
		"in one event":    {[]agent.Event{result("1", one), result("2", two)}, "1: one;2: two"},
		"one ID twice":    {[]agent.Event{called("1"), result("1", one), called("1"), result("1", two)}, "1: one;1: two"},
		"without a call":  {[]agent.Event{result("", one), called("2"), result("", two)}, "2: two"},
		"of two requests": {[]agent.Event{called("1"), result("", one), called("2"), result("", two)}, "1: one;2: two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			these := changing(func(s *runtime.Session, events []agent.Event) []agent.Event {
				if len(s.Turns) > 0 {
					return events
				}
				return append(slices.Clone(test.events), events...)
			})
			want := "human one"
			for pair := range strings.SplitSeq(test.want, ";") {
				id, text, _ := strings.Cut(pair, ":")
				want += fmt.Sprintf("|ai [{%s  }]|tool %s", id, strings.TrimPrefix(text, " "))
			}
			modelGets(t, "", these, want+"|ai re one|human bye", "one", "bye")
		})
	}
}

// A member that a pipeline of Beluga invokes shows no events: the history has its answer alone.
func TestHistory_ofAPipeline_hasTheAnswers(t *testing.T) {
	t.Parallel()
	m := &asked{}
	member := remembering(m, "Friday")
	r := newRunner(t, answers(func(ctx context.Context, input string) (string, error) { return member.Invoke(ctx, input) }),
		"mem://", belugarunner.Options{Namespace: t.Name()})
	talk(t, r, "s", "my order?", "bye")
	m.got(t, "human my order?|ai re Friday|human bye")
}

func TestHistory_outsideOfARun_isRefused(t *testing.T) {
	t.Parallel()
	m := &asked{}
	model := belugarunner.History(m)
	_, err := model.Generate(t.Context(), []schema.Message{schema.NewHumanMessage("hi")})
	refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	for _, err := range model.Stream(t.Context(), nil) {
		refusedWith(t, err, core.ErrInvalidInput, distlock.ErrInvalidOption)
	}
	if m.requests != nil {
		t.Errorf("the model was asked: %q", m.requests)
	}
}

// Without a History, a turn is stored as before.
func TestHistory_notUsed_storesNoTools(t *testing.T) {
	t.Parallel()
	r := newRunner(t, agent.New("agent", agent.WithLLM(&asked{})), "mem://", belugarunner.Options{Namespace: t.Name()})
	talk(t, r, "s", "my order?")
	session := must2(r.Sessions().Get(t.Context(), "s"))
	if session.Turns[0].Metadata != nil {
		t.Errorf("the turn has the metadata %v", session.Turns[0].Metadata)
	}
}
