// Package llm holds the interface of models.
package llm

import (
	"context"
	"iter"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

type ChatModel interface {
	Generate(ctx context.Context, msgs []schema.Message, opts ...GenerateOption) (*schema.AIMessage, error)
	Stream(ctx context.Context, msgs []schema.Message, opts ...GenerateOption) iter.Seq2[schema.StreamChunk, error]
	BindTools(tools []schema.ToolDefinition) ChatModel
	ModelID() string
}

type GenerateOption func(*GenerateOptions)

type GenerateOptions struct{}
