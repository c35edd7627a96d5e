package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
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

// Log lines of a Locker carry the trace of the request that acquired the lease.
func ExampleLogHandler() {
	provider := sdktrace.NewTracerProvider()
	ctx, span := provider.Tracer("app").Start(context.Background(), "request")
	defer span.End()

	var line strings.Builder
	logger := slog.New(tracing.LogHandler(slog.NewTextHandler(&line, nil))) // of distlock.Options
	logger.InfoContext(ctx, "hello")
	fmt.Println(strings.Contains(line.String(), "trace_id="+span.SpanContext().TraceID().String()))
	// Output: true
}

// Metrics go to a provider, and spans show no key.
func ExampleWithMeterProvider() {
	reader := metric.NewManualReader() // a Prometheus or OTLP reader in a service
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	observer, err := tracing.New(tracing.WithMeterProvider(provider), tracing.WithKeyAttribute(distlock.KeyNone))
	fmt.Println(observer.Enabled(), err)
	// Output: true <nil>
}
