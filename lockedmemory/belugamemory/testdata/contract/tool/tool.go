// Package tool holds the interface of tools.
package tool

import (
	"context"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

type Tool interface {
	Name() string
	Description() string
	InputSchema() map[string]any
	Execute(ctx context.Context, input map[string]any) (*Result, error)
}

type Result struct {
	Content []schema.ContentPart
	IsError bool
}
