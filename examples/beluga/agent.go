package main

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lookatitude/beluga-ai/v2/agent"
	"github.com/lookatitude/beluga-ai/v2/llm"
	"github.com/lookatitude/beluga-ai/v2/schema"
	"github.com/lookatitude/beluga-ai/v2/tool"

	"github.com/belugalock/belugalock/lockedmemory/belugamemory/belugarunner"
)

// newAgent makes an agent with a tool, whose model gets up to 4000 tokens of the chat. Any other
// llm.ChatModel can stand in the place of the scripted one.
func newAgent(delay time.Duration) agent.Agent {
	model := belugarunner.History(scripted{delay})
	return agent.New("assistant", agent.WithLLM(model), agent.WithTools([]tool.Tool{
		tool.NewFuncTool("order", "Tells when an order arrives", arrival),
	}))
}

type order struct {
	ID string `json:"id" description:"The number of the order" required:"true"`
}

func arrival(ctx context.Context, o order) (*tool.Result, error) {
	progress(ctx, "looking for order "+o.ID)
	return tool.TextResult("Order " + o.ID + " arrives on Friday."), nil
}

// scripted is a model that calls the tool for a question with a number, and repeats its result. For
// a question about "that order" it repeats the last result of the chat.
type scripted struct{ delay time.Duration }

var number = regexp.MustCompile(`\d+`)

func (m scripted) Generate(ctx context.Context, messages []schema.Message, _ ...llm.GenerateOption) (*schema.AIMessage, error) {
	select {
	case <-time.After(m.delay):
	case <-ctx.Done(): // the client is gone, or the lease is lost
		return nil, context.Cause(ctx)
	}
	switch last := messages[len(messages)-1].(type) {
	case *schema.ToolMessage:
		return schema.NewAIMessage(last.Text()), nil
	case *schema.HumanMessage:
		if strings.Contains(last.Text(), "that order") {
			for _, earlier := range slices.Backward(messages) {
				if result, ok := earlier.(*schema.ToolMessage); ok {
					return schema.NewAIMessage(result.Text()), nil
				}
			}
		}
		if id := number.FindString(last.Text()); id != "" {
			return &schema.AIMessage{ToolCalls: []schema.ToolCall{{ID: "call-1", Name: "order", Arguments: fmt.Sprintf(`{"id":%q}`, id)}}}, nil
		}
	}
	return schema.NewAIMessage("Which order?"), nil
}

// Stream is not called: the planner of the agent uses Generate.
func (m scripted) Stream(ctx context.Context, messages []schema.Message, _ ...llm.GenerateOption) iter.Seq2[schema.StreamChunk, error] {
	return func(yield func(schema.StreamChunk, error) bool) {
		answer, err := m.Generate(ctx, messages)
		if err != nil {
			yield(schema.StreamChunk{}, err)
			return
		}
		yield(schema.StreamChunk{Delta: answer.Text(), FinishReason: "stop"}, nil)
	}
}

func (m scripted) BindTools([]schema.ToolDefinition) llm.ChatModel { return m }
func (m scripted) ModelID() string                                 { return "scripted" }
