// Package hitch makes a turn take longer at one place, and say so, so that its instance can be
// struck there: killed or paused.
package hitch

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Place is where in a turn.
type Place string

// The places.
const (
	Model  Place = "model"  // the model thinks
	Write  Place = "write"  // the history's server does not have the write yet, and nothing can call it back
	Answer Place = "answer" // it has the write, and the instance does not know that yet
)

// Span is the name of the span that says that the place is reached. It ends as it begins, so that
// it is told at once.
const Span = "chaos.hitch"

// lasts is how much longer it takes there. The lock is renewed meanwhile.
const lasts = 500 * time.Millisecond

type key struct{}

// With returns a context for a turn with a hitch at a place, or none if place is empty.
func With(ctx context.Context, place Place) context.Context {
	return context.WithValue(ctx, key{}, place)
}

// At is called wherever there may be a hitch.
func At(ctx context.Context, place Place) {
	if ctx.Value(key{}) != place {
		return
	}
	_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("examples/agent").Start(ctx, Span)
	span.End()
	time.Sleep(lasts)
}
