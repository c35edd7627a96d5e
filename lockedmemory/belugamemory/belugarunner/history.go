package belugarunner

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/runtime"
	"github.com/lookatitude/beluga-ai/v2/schema"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory"
	"github.com/belugalock/belugalock/lockedmemory/belugamemory/internal/codes"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// History is a middleware of the model of an agent, see [New]. It puts the last turns of the run's
// session after the system messages of each request, with the calls and results of tools. The run
// stores its own calls and results with its turn: those of its events. Tools of an agent that another
// agent invokes, such as a member of runtime.PipelinePattern, make no events, and are not stored.
//
// The turns have at most the tokens of Options.History. A turn is put in whole or left out, the newest
// first. Of a tool's result, the model gets the text.
//
// Outside of a run of New, the model fails with core.ErrInvalidInput and distlock.ErrInvalidOption.
func History(next llm.ChatModel) llm.ChatModel { return historyModel{next} }

type historyModel struct{ llm.ChatModel }

func (m historyModel) Generate(
	ctx context.Context, messages []schema.Message, opts ...llm.GenerateOption,
) (*schema.AIMessage, error) {
	messages, err := m.recall(ctx, messages)
	if err != nil {
		return nil, err
	}
	return m.ChatModel.Generate(ctx, messages, opts...)
}

func (m historyModel) Stream(
	ctx context.Context, messages []schema.Message, opts ...llm.GenerateOption,
) iter.Seq2[schema.StreamChunk, error] {
	messages, err := m.recall(ctx, messages)
	if err != nil {
		return func(yield func(schema.StreamChunk, error) bool) { yield(schema.StreamChunk{}, err) }
	}
	return m.ChatModel.Stream(ctx, messages, opts...)
}

func (m historyModel) BindTools(tools []schema.ToolDefinition) llm.ChatModel {
	return historyModel{m.ChatModel.BindTools(tools)}
}

// recall returns the messages with the last turns of the session after the first system messages.
func (m historyModel) recall(ctx context.Context, messages []schema.Message) ([]schema.Message, error) {
	r := runOf(ctx)
	if r == nil {
		return nil, codes.Of("belugarunner.history", codes.Invalid("the model has a History, and no run of New is around "+
			"the call: ask the model in a run, or ask the one without History"))
	}
	r.asked.Store(true)
	var newest [][]schema.Message
	left := r.opts.History
	for _, turn := range slices.Backward(r.past) {
		exchange, err := exchangeOf(turn)
		if err != nil {
			return nil, codes.Of("belugarunner.history", err)
		}
		if left -= tokensOf(exchange); left < 0 {
			break
		}
		newest = append(newest, exchange)
	}
	slices.Reverse(newest)
	begin := slices.IndexFunc(messages, func(m schema.Message) bool { return m.GetRole() != schema.RoleSystem })
	if begin < 0 {
		begin = len(messages)
	}
	return slices.Insert(slices.Clone(messages), begin, slices.Concat(newest...)...), nil
}

func tokensOf(exchange []schema.Message) int {
	count := &llm.SimpleTokenizer{}
	tokens := count.CountMessages(exchange)
	for _, message := range exchange {
		if ai, ok := message.(*schema.AIMessage); ok {
			for _, call := range ai.ToolCalls {
				tokens += count.Count(call.Name + call.Arguments)
			}
		}
	}
	return tokens
}

// toolsKey is the metadata of a turn with its calls and results, one encoded message a line.
const toolsKey = "belugarunner.tools"

// exchangeOf returns the messages of a turn. An answer without text is left out: models refuse it.
func exchangeOf(turn schema.Turn) (exchange []schema.Message, err error) {
	if !isNil(turn.Input) {
		exchange = append(exchange, turn.Input)
	}
	stored, _ := turn.Metadata[toolsKey].(string)
	for line := range strings.Lines(stored) {
		message, err := belugamemory.Codec{}.Decode([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			return nil, fmt.Errorf("%w: the metadata %q of a turn: %w", sessionstore.ErrCodec, toolsKey, err)
		}
		exchange = append(exchange, message)
	}
	if turn.Output != nil && (belugamemory.Codec{}).Text(turn.Output) != "" {
		exchange = append(exchange, turn.Output)
	}
	return exchange, nil
}

// addMetadata adds to the metadata of the session's last turn: that the run was stopped, and its calls and results.
// ⚑ Those of a message with an ID, too, without a History: a repetition needs them.
func (r *run) addMetadata(session *runtime.Session, replayed bool) error {
	metadata := map[string]any{}
	if r.cut {
		metadata[Stopped] = true
	}
	if (r.asked.Load() || replayed) && len(r.tools) > 0 {
		var lines [][]byte
		for _, message := range r.tools {
			line, err := belugamemory.Codec{}.Encode(message)
			if err != nil {
				return fmt.Errorf("%w: nothing was written: a tool: %w", sessionstore.ErrCodec, err)
			}
			lines = append(lines, line)
		}
		metadata[toolsKey] = string(bytes.Join(lines, []byte("\n")))
	}
	if len(metadata) == 0 || len(session.Turns) == 0 {
		return nil
	}
	turn := &session.Turns[len(session.Turns)-1]
	maps.Copy(metadata, turn.Metadata)
	turn.Metadata = metadata
	return nil
}

// historyPlugin is the last plugin of a run: it sees the turns and events as other plugins leave them.
type historyPlugin struct{ run *run }

func (historyPlugin) Name() string { return "belugarunner.history" }

func (p historyPlugin) BeforeTurn(
	_ context.Context, session *runtime.Session, input schema.Message,
) (schema.Message, error) {
	p.run.past = session.Turns
	if err := codes.TypedNil(input); err != nil {
		return nil, fmt.Errorf("the BeforeTurn of a plugin: %w", err)
	}
	return input, nil
}

func (p historyPlugin) AfterTurn(_ context.Context, _ *runtime.Session, events []agent.Event) ([]agent.Event, error) {
	missing := noResult
	if p.run.cut {
		missing = "stopped"
	}
	p.run.tools = toolsOf(events, missing)
	return events, nil
}

func (historyPlugin) OnError(_ context.Context, err error) error { return err }

// noResult stands for a result that is missing: models refuse a call without one.
const noResult = "no result: the call was refused, or a plugin has removed its result"

// toolsOf returns the calls in events, each with its result, or with a text that stands for a missing one.
func toolsOf(events []agent.Event, missing string) (tools []schema.Message) {
	agents := map[string]*openCalls{} // those of a team work at the same time
	for _, event := range events {
		of := agents[event.AgentID]
		if of == nil {
			of = new(openCalls)
			agents[event.AgentID] = of
		}
		isResult := event.ToolResult != nil || event.Type == agent.EventToolResult
		if call := event.ToolCall; call != nil && !(isResult && of.index(call.ID) >= 0) {
			of.settle()
			of.calls = append(of.calls, schema.NewToolMessage(call.ID, missing))
			tools = append(tools, &schema.AIMessage{ToolCalls: []schema.ToolCall{*call}}, of.calls[len(of.calls)-1])
		}
		if isResult {
			of.result(event)
		}
	}
	for _, of := range agents {
		of.settle()
	}
	return tools
}

// openCalls are the calls of an agent without a result, and the results since then that name no call.
type openCalls struct{ calls, results []*schema.ToolMessage }

func (o *openCalls) index(id string) int {
	return slices.IndexFunc(o.calls, func(m *schema.ToolMessage) bool { return m.ToolCallID == id })
}

// result takes the result of an event. An event may name its call by ID. Those of Beluga 2.13.2 do not.
func (o *openCalls) result(event agent.Event) {
	text := "" // of a tool that returns nil
	if event.ToolResult != nil {
		text = belugamemory.Codec{}.Text(&schema.ToolMessage{Parts: event.ToolResult.Content})
	}
	result := schema.NewToolMessage("", strings.ToValidUTF8(text, "\ufffd")) // as JSON gives it to the model
	if event.ToolCall == nil {
		o.results = append(o.results, result)
		return
	}
	i := o.index(event.ToolCall.ID)
	o.calls[i].Parts = result.Parts
	o.calls = slices.Delete(o.calls, i, i+1)
}

// settle gives the results to the last calls, in order. Earlier calls have none: a hook has refused them.
func (o *openCalls) settle() {
	n := min(len(o.calls), len(o.results))
	for i, call := range o.calls[len(o.calls)-n:] {
		call.Parts = o.results[i].Parts
	}
	if len(o.results) > 0 {
		*o = openCalls{}
	}
}
