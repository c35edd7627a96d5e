package agent

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"
)

const (
	EventToolCall   EventType = "tool_call"
	EventToolResult EventType = "tool_result"
	EventDone       EventType = "done"
	EventError      EventType = "error"
)

// BaseAgent asks its model, runs the tools that the model calls, and asks the model again.
type BaseAgent struct {
	id     string
	config agentConfig
}

func New(id string, opts ...Option) *BaseAgent {
	a := &BaseAgent{id: id}
	for _, opt := range opts {
		opt(&a.config)
	}
	return a
}

func WithLLM(model llm.ChatModel) Option { return func(c *agentConfig) { c.llm = model } }

func WithTools(tools []tool.Tool) Option { return func(c *agentConfig) { c.tools = tools } }

func (a *BaseAgent) ID() string         { return a.id }
func (a *BaseAgent) Persona() Persona   { return Persona{} }
func (a *BaseAgent) Tools() []tool.Tool { return a.config.tools }
func (a *BaseAgent) Children() []Agent  { return nil }

func (a *BaseAgent) Invoke(ctx context.Context, input string, opts ...Option) (string, error) {
	text := ""
	for event, err := range a.Stream(ctx, input, opts...) {
		if err != nil {
			return text, err
		}
		if event.Type == EventText {
			text += event.Text
		}
	}
	return text, nil
}

const (
	maxIterations = 10
	timeout       = 5 * time.Minute
)

// Stream panics if a consumer returns false before an error, as with Beluga 2.13.2: its executor yields on.
func (a *BaseAgent) Stream(ctx context.Context, input string, opts ...Option) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for event, err := range a.execute(ctx, input, opts...) {
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// execute sends the model the input alone, without the history of a session. From the third call on,
// the model sees each tool call and its result twice or more, as with Beluga 2.13.2.
func (a *BaseAgent) execute(ctx context.Context, input string, opts ...Option) iter.Seq2[Event, error] {
	config := a.config
	for _, opt := range opts {
		opt(&config)
	}
	return func(yield func(Event, error) bool) {
		fail := func(err error) { yield(Event{Type: EventError, AgentID: a.id}, err) }
		if config.llm == nil {
			fail(core.Errorf(core.ErrInvalidInput, "agent %q has no model", a.id))
			return
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		messages := []schema.Message{schema.NewHumanMessage(input)}
		var observed []schema.Message
		for range maxIterations {
			if err := ctx.Err(); err != nil {
				fail(core.Errorf(core.ErrTimeout, "the agent was cancelled: %w", err))
				return
			}
			model := config.llm
			if len(config.tools) > 0 {
				model = model.BindTools(definitions(config.tools))
			}
			answer, err := model.Generate(ctx, append(messages[:len(messages):len(messages)], observed...))
			if err != nil {
				fail(core.Errorf(core.ErrProviderDown, "the model failed: %w", err))
				return
			}
			if len(answer.ToolCalls) == 0 {
				yield(Event{Type: EventText, AgentID: a.id, Text: answer.Text()}, nil)
				yield(Event{Type: EventDone, AgentID: a.id, Text: answer.Text()}, nil)
				return
			}
			for _, call := range answer.ToolCalls {
				yield(Event{Type: EventToolCall, AgentID: a.id, ToolCall: &call}, nil)
				result := execute(ctx, config.tools, call)
				yield(Event{Type: EventToolResult, AgentID: a.id, ToolResult: result}, nil)
				observed = append(observed, &schema.AIMessage{ToolCalls: []schema.ToolCall{call}}, schema.NewToolMessage(call.ID, textOf(result)))
			}
			messages = append(messages, observed...)
		}
		fail(core.Errorf(core.ErrInvalidInput, "the agent has reached %d iterations", maxIterations))
	}
}

func definitions(tools []tool.Tool) (all []schema.ToolDefinition) {
	for _, t := range tools {
		all = append(all, schema.ToolDefinition{Name: t.Name(), Description: t.Description(), InputSchema: t.InputSchema()})
	}
	return all
}

func execute(ctx context.Context, tools []tool.Tool, call schema.ToolCall) *tool.Result {
	for _, t := range tools {
		if t.Name() != call.Name {
			continue
		}
		var input map[string]any
		if call.Arguments != "" {
			if err := json.Unmarshal([]byte(call.Arguments), &input); err != nil {
				return tool.ErrorResult(err)
			}
		}
		result, err := t.Execute(ctx, input)
		if err != nil {
			return tool.ErrorResult(err)
		}
		return result
	}
	return tool.ErrorResult(core.Errorf(core.ErrNotFound, "there is no tool %s", call.Name))
}

func textOf(result *tool.Result) string {
	var texts []string
	for _, part := range result.Content {
		if text, ok := part.(schema.TextPart); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}
