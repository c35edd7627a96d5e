package tracing_test

import (
	"context"
	"log/slog"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/tracing"
)

// dropped is a span processor that does nothing.
type dropped struct{}

func (dropped) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropped) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropped) Shutdown(context.Context) error                  { return nil }
func (dropped) ForceFlush(context.Context) error                { return nil }

// BenchmarkTracing acquires and releases a free lock, without a server and an exporter.
func BenchmarkTracing(b *testing.B) {
	spans := tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropped{})))
	never := tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())))
	metrics := tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	for _, c := range []struct {
		name string
		opts []tracing.Option
	}{
		{"none", nil},
		{"off", []tracing.Option{noSpans, noMetrics}},
		{"metrics", []tracing.Option{noSpans, metrics}},
		{"unsampled", []tracing.Option{never, noMetrics}},
		{"spans", []tracing.Option{spans, noMetrics}},
		{"both", []tracing.Option{spans, metrics}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var observer distlock.Observer
			if c.opts != nil {
				t, err := tracing.New(c.opts...)
				must(b, err)
				observer = t
			}
			locker, err := memlock.New(&distlock.Options{Observer: observer, Logger: slog.New(slog.DiscardHandler)})
			must(b, err)
			defer locker.Close(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				lease, err := locker.Acquire(context.Background(), "key")
				must(b, err)
				must(b, lease.Release(context.Background()))
			}
		})
	}
}
