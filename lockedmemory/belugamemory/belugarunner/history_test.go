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

// last returns the newest request.
func (m *asked) last() string { return m.requests[len(m.requests)-1] }

// got checks the newest request.
func (m *asked) got(t testing.TB, want string) {
	t.Helper()
	if m.last() != want {
		t.Errorf("the model got\n%q\nwant\n%q", m.last(), want)
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

// Two instances share the history, with the calls and results of tools.
func TestHistory_reachesTheModelOfTheNextInstance(t *testing.T) {
	for name, url := range map[string]string{"in process": "mem://", "on Redis": servers.SharedServer().URL()} {
		t.Run(name, func(t *testing.T) {
			first, second := &asked{}, &asked{}
			a := newRunner(t, remembering(first, "Friday"), url, belugarunner.Options{Namespace: t.Name()})
			b := newRunner(t, remembering(second, "Friday"), url, belugarunner.Options{Namespace: t.Name()})
			ask := func(r *belugarunner.Runner, input string) {
				t.Helper()
				succeeds(t)(say(t.Context(), r, "s", input))
			}
			ask(a, "my order?")
			ask(b, "thanks")
			const turn = `human my order?|ai [{1 order {"id":"7"}}]|tool Friday|ai re Friday|`
			if want := turn + "human thanks"; second.last() != want || first.bound == 0 {
				t.Errorf("the model got\n%s\nwant\n%s", second.last(), want)
			}
			ask(a, "bye") // the history was not stored again
			if want := turn + "human thanks|ai re thanks|human bye"; first.last() != want {
				t.Errorf("the model got\n%s\nwant\n%s", first.last(), want)
			}
			if _, errs := say(t.Context(), a, "another", "hi"); errs != nil || first.last() != "human hi" {
				t.Errorf("in another session the model got %s, %v", first.last(), errs)
			}
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
			created, err := all.Create(t.Context(), assistant.ID())
			must(t, err)
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
	t.Parallel()
	for tokens, want := range map[int]string{25: "human hi", 26: `human my order?|ai [{1 order {"id":"7"}}]|tool Fri|ai re Fri|human hi`} {
		m := &asked{}
		r := newRunner(t, remembering(m, "Fri"), "mem://", belugarunner.Options{History: tokens, Namespace: fmt.Sprint(t.Name(), tokens)})
		talk(t, r, "s", "my order?", "hi")
		if m.last() != want {
			t.Errorf("with %d tokens the model got\n%s\nwant\n%s", tokens, m.last(), want)
		}
	}
}

// hiding is a plugin that removes the events of tools, and earlier turns.
type hiding struct{ hooks }

func (*hiding) BeforeTurn(_ context.Context, s *runtime.Session, input schema.Message) (schema.Message, error) {
	if len(s.Turns) > 1 {
		s.Turns = s.Turns[1:]
	}
	return input, nil
}

func (*hiding) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) (kept []agent.Event, err error) {
	for _, event := range events {
		if event.ToolResult == nil {
			kept = append(kept, event)
		}
	}
	return kept, nil
}

func TestHistory_isAsPluginsLeaveIt(t *testing.T) {
	t.Parallel()
	m := &asked{}
	r := newRunner(t, remembering(m, "secret"), "mem://", belugarunner.Options{Namespace: t.Name(), Plugins: []runtime.Plugin{&hiding{}}})
	talk(t, r, "s", "one", "my order?", "bye")
	const call = `ai [{1 order {"id":"7"}}]|tool no result: the call was refused, or a plugin has removed its result|`
	m.got(t, "human my order?|"+call+"ai re secret|human bye")
}

func TestHistory_toolWithBytes_isStoredAsJSONShowsIt(t *testing.T) {
	t.Parallel()
	m := &asked{}
	r := newRunner(t, remembering(m, "a\xffb"), "mem://", belugarunner.Options{Namespace: t.Name(), Plugins: []runtime.Plugin{&answerless{}}})
	talk(t, r, "s", "my order?", "bye")
	m.got(t, "human my order?|ai [{1 order {\"id\":\"7\"}}]|tool a\ufffdb|human bye")
}

// answerless removes the text of answers.
type answerless struct{ hooks }

func (*answerless) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	for i := range events {
		events[i].Text = ""
	}
	return events, nil
}

// atOnce is a plugin that makes the events of two agents at work at the same time.
type atOnce struct{ hooks }

func (*atOnce) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) (all []agent.Event, err error) {
	for _, id := range []string{"a", "b"} {
		all = append(all, agent.Event{Type: agent.EventToolCall, AgentID: id, ToolCall: &schema.ToolCall{ID: id, Name: "of " + id}})
	}
	for _, id := range []string{"b", "a"} {
		all = append(all, agent.Event{Type: agent.EventToolResult, AgentID: id, ToolResult: tool.TextResult("for " + id)})
	}
	return append(all, events...), nil
}

// The call of one agent does not get the result of another.
func TestHistory_agentsAtOnce_keepTheirResults(t *testing.T) {
	t.Parallel()
	m := &asked{}
	r := newRunner(t, remembering(m, ""), "mem://", belugarunner.Options{Namespace: t.Name(), Plugins: []runtime.Plugin{&atOnce{}}})
	talk(t, r, "s", "one", "bye")
	m.got(t, "human one|ai [{a of a }]|tool for a|ai [{b of b }]|tool for b|ai re one|human bye")
}

// these is a plugin that adds events of tools to the first turn.
type these struct {
	hooks
	events []agent.Event
}

func (p *these) AfterTurn(_ context.Context, s *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	if len(s.Turns) > 0 {
		return events, nil
	}
	return append(slices.Clone(p.events), events...), nil
}

func TestHistory_everyCall_hasItsResult(t *testing.T) {
	t.Parallel()
	called := func(id string) agent.Event {
		return agent.Event{Type: agent.EventToolCall, AgentID: "a", ToolCall: &schema.ToolCall{ID: id}}
	}
	result := func(id string, result *tool.Result) agent.Event {
		e := agent.Event{Type: agent.EventToolResult, AgentID: "a", ToolResult: result}
		if id != "" {
			e.ToolCall = &schema.ToolCall{ID: id}
		}
		return e
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
			m := &asked{}
			r := newRunner(t, remembering(m, ""), "mem://", belugarunner.Options{Namespace: "results " + name, Plugins: []runtime.Plugin{&these{events: test.events}}})
			talk(t, r, "s", "one", "bye")
			want := "human one"
			for pair := range strings.SplitSeq(test.want, ";") {
				id, text, _ := strings.Cut(pair, ":")
				want += fmt.Sprintf("|ai [{%s  }]|tool %s", id, strings.TrimPrefix(text, " "))
			}
			if want += "|ai re one|human bye"; m.last() != want {
				t.Errorf("the model got\n%s\nwant\n%s", m.last(), want)
			}
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
	succeeds(t)(say(t.Context(), r, "s", "my order?"))
	session, err := r.Sessions().Get(t.Context(), "s")
	must(t, err)
	if session.Turns[0].Metadata != nil {
		t.Errorf("the turn has the metadata %v", session.Turns[0].Metadata)
	}
}
