package memory

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/lookatitude/beluga-ai/v2/schema"
)

// tracer follows the first provider that becomes the global one, and no later one.
var tracer = otel.Tracer("github.com/lookatitude/beluga-ai/v2/o11y")

// WithTracing makes a span for every operation.
func WithTracing() Middleware {
	return func(next Memory) Memory { return traced{next} }
}

type traced struct{ next Memory }

func span(ctx context.Context, name string, run func(ctx context.Context) error) error {
	ctx, span := tracer.Start(ctx, name)
	defer span.End()
	span.SetAttributes(attribute.String("gen_ai.operation.name", name))
	err := run(ctx)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		return err
	}
	span.SetStatus(codes.Ok, "")
	return nil
}

func (t traced) Save(ctx context.Context, input, output schema.Message) error {
	return span(ctx, "memory.save", func(ctx context.Context) error { return t.next.Save(ctx, input, output) })
}

func (t traced) Load(ctx context.Context, query string) (messages []schema.Message, err error) {
	err = span(ctx, "memory.load", func(ctx context.Context) error {
		messages, err = t.next.Load(ctx, query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return messages, nil
}

func (t traced) Search(ctx context.Context, query string, k int) (documents []schema.Document, err error) {
	err = span(ctx, "memory.search", func(ctx context.Context) error {
		documents, err = t.next.Search(ctx, query, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	return documents, nil
}

func (t traced) Clear(ctx context.Context) error { return span(ctx, "memory.clear", t.next.Clear) }
