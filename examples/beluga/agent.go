package main

import (
	"context"
	"fmt"
	"iter"
	"os"
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
	model := belugarunner.History(pieces{scripted{delay: delay}})
	return writing{agent.New("assistant", agent.WithLLM(model), agent.WithTools([]tool.Tool{
		tool.NewFuncTool("order", "Tells when an order arrives", arrival),
	}))}
}

// writing is an agent whose text comes in the pieces of its model. An agent of Beluga 2.13.2 sends one text for
// each answer of the model.
type writing struct{ agent.Agent }

type pieceKey struct{}

func (a writing) Stream(ctx context.Context, input string, opts ...agent.Option) iter.Seq2[agent.Event, error] {
	return func(yield func(agent.Event, error) bool) {
		inPieces := false
		ctx := context.WithValue(ctx, pieceKey{}, func(text string) {
			inPieces = true
			yield(agent.Event{Type: agent.EventText, AgentID: a.ID(), Text: text}, nil)
		})
		a.Agent.Stream(ctx, input, opts...)(func(event agent.Event, err error) bool {
			return inPieces && event.Type == agent.EventText || yield(event, err)
		})
	}
}

// pieces is a model that gives its text to the agent while it writes.
type pieces struct{ llm.ChatModel }

func (m pieces) Generate(ctx context.Context, messages []schema.Message, opts ...llm.GenerateOption) (*schema.AIMessage, error) {
	text, calls := "", []schema.ToolCall(nil)
	for chunk, err := range m.Stream(ctx, messages, opts...) {
		if err != nil {
			return nil, err
		}
		if write, ok := ctx.Value(pieceKey{}).(func(string)); ok && chunk.Delta != "" {
			write(chunk.Delta)
		}
		text, calls = text+chunk.Delta, append(calls, chunk.ToolCalls...)
	}
	answer := schema.NewAIMessage(text)
	answer.ToolCalls = calls
	return answer, nil
}

func (m pieces) BindTools(tools []schema.ToolDefinition) llm.ChatModel {
	return pieces{m.ChatModel.BindTools(tools)}
}

type order struct {
	ID string `json:"id" description:"The number of the order" required:"true"`
}

func arrival(_ context.Context, o order) (*tool.Result, error) {
	return tool.TextResult(fmt.Sprintf("Order %s arrives on Friday, says instance %d.", o.ID, os.Getpid())), nil
}

// scripted is a model that calls the tool for a question with a number, and repeats its result. For
// a question about "that order" it repeats the last result of the chat.
type scripted struct {
	llm.ChatModel // nil: pieces does not use Generate
	delay         time.Duration
}

var (
	number = regexp.MustCompile(`\d+`)
	word   = regexp.MustCompile(` ?[^ ]+`)
)

// Stream waits before each call and each word.
func (m scripted) Stream(ctx context.Context, messages []schema.Message, _ ...llm.GenerateOption) iter.Seq2[schema.StreamChunk, error] {
	return func(yield func(schema.StreamChunk, error) bool) {
		for _, chunk := range respond(messages) {
			select {
			case <-time.After(m.delay):
			case <-ctx.Done(): // the run was stopped, or the lease is lost
				yield(schema.StreamChunk{}, context.Cause(ctx))
				return
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

func respond(messages []schema.Message) []schema.StreamChunk {
	switch last := messages[len(messages)-1].(type) {
	case *schema.ToolMessage:
		return words(last.Text())
	case *schema.HumanMessage:
		if strings.Contains(last.Text(), "that order") {
			for _, earlier := range slices.Backward(messages) {
				if result, ok := earlier.(*schema.ToolMessage); ok {
					return words(result.Text())
				}
			}
		}
		if id := number.FindString(last.Text()); id != "" {
			call := schema.ToolCall{ID: "call-1", Name: "order", Arguments: fmt.Sprintf(`{"id":%q}`, id)}
			return []schema.StreamChunk{{ToolCalls: []schema.ToolCall{call}}}
		}
	}
	return words("Which order?")
}

func words(text string) (chunks []schema.StreamChunk) {
	for _, w := range word.FindAllString(text, -1) {
		chunks = append(chunks, schema.StreamChunk{Delta: w})
	}
	return chunks
}

func (m scripted) BindTools([]schema.ToolDefinition) llm.ChatModel { return m }
func (m scripted) ModelID() string                                 { return "scripted" }
