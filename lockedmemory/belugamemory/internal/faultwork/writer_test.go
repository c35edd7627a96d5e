package faultwork

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/internal/test/campaign/beluga"
)

// writer is an agent with a tool. Its answer repeats the input, says what its model was given of the session, and
// when it began and ended. Half of its runs ignore their context.
type writer struct {
	model llm.ChatModel
	ttl   time.Duration
}

func (writer) ID() string              { return "writer" }
func (writer) Persona() agent.Persona  { return agent.Persona{} }
func (writer) Tools() []tool.Tool      { return nil }
func (writer) Children() []agent.Agent { return nil }

func (writer) Invoke(context.Context, string, ...agent.Option) (string, error) {
	return "", errors.New("a Runner streams")
}

func (w writer) Stream(ctx context.Context, input string, _ ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		if rand.IntN(2) == 0 {
			ctx = context.WithoutCancel(ctx)
		}
		begun := time.Now().UnixNano()
		known, err := w.model.Generate(ctx, []schema.Message{schema.NewHumanMessage(input)})
		if err != nil {
			yield(agent.Event{}, err)
			return
		}
		call := schema.ToolCall{ID: fmt.Sprint("call-", begun), Name: "look", Arguments: "{}"}
		events := []agent.Event{
			{Type: agent.EventToolCall, ToolCall: &call},
			{Type: agent.EventToolResult, ToolResult: tool.TextResult("of " + call.ID)},
		}
		text := agent.Event{Type: agent.EventText, Text: fmt.Sprintf("answer to %s knowing %s from %d", input, known.Text(), begun)}
		switch rand.IntN(3) {
		case 0:
			events = []agent.Event{text}
		case 1:
			events = append(events, text)
		default:
			events = append([]agent.Event{text}, events...)
		}
		said := ""
		for _, event := range append(events, agent.Event{Type: agent.EventText}, agent.Event{Type: agent.EventDone}) {
			select {
			case <-time.After(w.thinks()):
			case <-ctx.Done():
				yield(agent.Event{}, ctx.Err())
				return
			}
			switch {
			case event.Type == agent.EventDone:
				event.Text = said
			case event.Type == agent.EventText && event.Text == "":
				event.Text = fmt.Sprint(" until ", time.Now().UnixNano())
			}
			said += event.Text
			yield(event, nil)
		}
	}
}

// thinks is mostly short, and sometimes long enough for a renewal.
func (w writer) thinks() time.Duration {
	if rand.IntN(80) == 0 {
		return rand.N(w.ttl)
	}
	return rand.N(4 * time.Millisecond)
}

// witness is a model. It answers with the number and the digest of the questions that it is given before the last,
// and tells of an orphan.
type witness struct {
	llm.ChatModel // its other methods are not called
	tell          func(orphan string)
}

func (w witness) Generate(_ context.Context, messages []schema.Message, _ ...llm.GenerateOption) (*schema.AIMessage, error) {
	if orphan := orphanOf(messages); orphan != "" {
		w.tell(orphan)
	}
	var questions []string
	for _, message := range messages {
		if question, ok := message.(*schema.HumanMessage); ok {
			questions = append(questions, question.Text())
		}
	}
	return schema.NewAIMessage(beluga.Digest(questions[:len(questions)-1])), nil
}
