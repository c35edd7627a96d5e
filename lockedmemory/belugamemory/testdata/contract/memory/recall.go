package memory

import (
	"context"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

type MessageStore interface {
	Append(ctx context.Context, msg schema.Message) error
	Search(ctx context.Context, query string, k int) ([]schema.Message, error)
	All(ctx context.Context) ([]schema.Message, error)
	Clear(ctx context.Context) error
}

// Recall is the memory of one conversation, whatever session the context names.
type Recall struct{ store MessageStore }

func NewRecall(store MessageStore) *Recall { return &Recall{store} }

// Save is two appends.
func (r *Recall) Save(ctx context.Context, input, output schema.Message) error {
	for _, message := range []schema.Message{input, output} {
		if err := r.store.Append(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recall) Load(ctx context.Context, query string) ([]schema.Message, error) {
	if query != "" {
		return r.store.Search(ctx, query, 20)
	}
	return r.store.All(ctx)
}

func (r *Recall) Search(context.Context, string, int) ([]schema.Document, error) { return nil, nil }

func (r *Recall) Clear(ctx context.Context) error { return r.store.Clear(ctx) }
