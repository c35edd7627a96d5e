package memory

import (
	"context"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// Hooks are optional.
type Hooks struct {
	BeforeSave   func(ctx context.Context, input, output schema.Message) error
	AfterSave    func(ctx context.Context, input, output schema.Message, err error)
	BeforeLoad   func(ctx context.Context, query string) error
	AfterLoad    func(ctx context.Context, query string, msgs []schema.Message, err error)
	BeforeSearch func(ctx context.Context, query string, k int) error
	AfterSearch  func(ctx context.Context, query string, k int, docs []schema.Document, err error)
	BeforeClear  func(ctx context.Context) error
	AfterClear   func(ctx context.Context, err error)
	OnError      func(ctx context.Context, err error) error
}

func WithHooks(hooks Hooks) Middleware {
	return func(next Memory) Memory { return &hooked{next, hooks} }
}

type hooked struct {
	Memory
	hooks Hooks
}

// Save is the only operation whose hooks the tests look at.
func (h *hooked) Save(ctx context.Context, input, output schema.Message) error {
	if before := h.hooks.BeforeSave; before != nil {
		if err := before(ctx, input, output); err != nil {
			return err
		}
	}
	err := h.Memory.Save(ctx, input, output)
	if err != nil && h.hooks.OnError != nil {
		err = h.hooks.OnError(ctx, err)
	}
	if after := h.hooks.AfterSave; after != nil {
		after(ctx, input, output, err)
	}
	return err
}
