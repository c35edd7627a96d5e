// Package llm holds the interface of models.
package llm

import (
	"context"
	"iter"
	"unicode/utf8"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

type ChatModel interface {
	Generate(ctx context.Context, msgs []schema.Message, opts ...GenerateOption) (*schema.AIMessage, error)
	Stream(ctx context.Context, msgs []schema.Message, opts ...GenerateOption) iter.Seq2[schema.StreamChunk, error]
	BindTools(tools []schema.ToolDefinition) ChatModel
	ModelID() string
}

type Middleware func(ChatModel) ChatModel

type GenerateOption func(*GenerateOptions)

type GenerateOptions struct{}

// SimpleTokenizer takes four characters for a token.
type SimpleTokenizer struct{}

func (t *SimpleTokenizer) Count(text string) int { return (utf8.RuneCountInString(text) + 3) / 4 }

// CountMessages adds 4 tokens for each message.
func (t *SimpleTokenizer) CountMessages(msgs []schema.Message) (total int) {
	for _, message := range msgs {
		total += 4
		for _, part := range message.GetContent() {
			if text, ok := part.(schema.TextPart); ok {
				total += t.Count(text.Text)
			}
		}
	}
	return total
}
