package tool

import (
	"context"
	"encoding/json"

	"github.com/lookatitude/beluga-ai/v2/core"
	"github.com/lookatitude/beluga-ai/v2/schema"
)

func TextResult(text string) *Result {
	return &Result{Content: []schema.ContentPart{schema.TextPart{Text: text}}}
}

func ErrorResult(err error) *Result {
	r := TextResult(err.Error())
	r.IsError = true
	return r
}

// FuncTool is a function with a struct of arguments. The contract knows no schema of the struct.
type FuncTool[I any] struct {
	name, description string
	fn                func(ctx context.Context, input I) (*Result, error)
}

func NewFuncTool[I any](name, description string, fn func(ctx context.Context, input I) (*Result, error)) *FuncTool[I] {
	return &FuncTool[I]{name, description, fn}
}

func (f *FuncTool[I]) Name() string                { return f.name }
func (f *FuncTool[I]) Description() string         { return f.description }
func (f *FuncTool[I]) InputSchema() map[string]any { return map[string]any{"type": "object"} }

func (f *FuncTool[I]) Execute(ctx context.Context, input map[string]any) (*Result, error) {
	text, err := json.Marshal(input)
	var typed I
	if err == nil {
		err = json.Unmarshal(text, &typed)
	}
	if err != nil {
		return nil, core.Errorf(core.ErrInvalidInput, "tool %s: %w", f.name, err)
	}
	return f.fn(ctx, typed)
}
