package tracing_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/tracing"
)

func ExampleNew() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter() // an OTLP exporter in a service
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	observer, err := tracing.New(tracing.WithTracerProvider(provider))
	if err != nil {
		panic(err)
	}
	locker, err := memlock.New(&distlock.Options{Observer: observer})
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)

	_ = locker.Do(ctx, "conversation-42", func(context.Context) error { return nil })
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
	}
	// Output:
	// distlock.acquire
	// distlock.release
}
