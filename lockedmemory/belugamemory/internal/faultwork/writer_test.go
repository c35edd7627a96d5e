package faultwork

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/internal/test/campaign/instance"
)

// writer is an agent with a tool. Its answer repeats the input, says what its model was given of the session,
// and when it began and ended. Half of its runs ignore their context.
type writer struct {
	agent.Agent // its other methods are not called
	model       llm.ChatModel
	ttl         time.Duration
}

func (writer) ID() string { return "writer" }

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
			{Type: agent.EventText, Text: fmt.Sprintf("answer to %s knowing %s from %d", input, known.Text(), begun)},
			{Type: agent.EventText},
			{Type: agent.EventDone},
		}
		switch rand.IntN(3) {
		case 0:
			events = events[2:]
		case 1:
			events[0], events[1], events[2] = events[2], events[0], events[1]
		}
		said := ""
		for _, event := range events {
			thinks := 4 * time.Millisecond
			if rand.IntN(80) == 0 { // long enough for a renewal
				thinks = w.ttl
			}
			select {
			case <-time.After(rand.N(thinks)):
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

// witness is a model. It answers with the number and the digest of the questions that it is given before the
// last, and tells of an orphan.
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
	return schema.NewAIMessage(instance.Digest(questions[:len(questions)-1])), nil
}
