package collectortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/tracing"
)

// telemetry exports what the instances of a scene report, each with a resource of its own.
type telemetry struct {
	t        *testing.T
	protocol string
	to       *collector
	flushes  []func(context.Context) error

	mu  sync.Mutex
	log bytes.Buffer
}

// of is incidents.Options.Telemetry.
func (x *telemetry) of(instance string) incidents.Telemetry {
	t := x.t
	t.Helper()
	spans, metrics := x.exporters()
	of := resource.NewSchemaless(attribute.String("service.name", "agent"),
		attribute.String("service.instance.id", instance))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(of))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)),
		sdkmetric.WithResource(of))
	t.Cleanup(func() {
		if err := errors.Join(tracers.Shutdown(context.Background()), meters.Shutdown(context.Background())); err != nil {
			t.Errorf("stop the exporters: %v", err)
		}
	})
	x.flushes = append(x.flushes, tracers.ForceFlush, meters.ForceFlush)
	observer, err := tracing.New(tracing.WithTracerProvider(tracers), tracing.WithMeterProvider(meters))
	if err != nil {
		t.Fatal(err)
	}
	lines := tracing.LogHandler(slog.NewJSONHandler(x, nil)).WithAttrs([]slog.Attr{slog.String("instance", instance)})
	return incidents.Telemetry{Observer: observer, Tracer: tracers.Tracer("application"), Logger: slog.New(lines)}
}

func (x *telemetry) exporters() (*otlptrace.Exporter, sdkmetric.Exporter) {
	var (
		spans   *otlptrace.Exporter
		metrics sdkmetric.Exporter
		failed  [2]error
		ctx     = x.t.Context()
	)
	switch x.protocol {
	case "grpc":
		spans, failed[0] = otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(x.to.grpc))
		metrics, failed[1] = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithEndpoint(x.to.grpc))
	case "http":
		spans, failed[0] = otlptracehttp.New(ctx, otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(x.to.http))
		metrics, failed[1] = otlpmetrichttp.New(ctx, otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithEndpoint(x.to.http))
	}
	if err := errors.Join(failed[:]...); err != nil {
		x.t.Fatal(err)
	}
	return spans, metrics
}

// flush returns when the collector has all earlier reports.
func (x *telemetry) flush() {
	x.t.Helper()
	for _, flush := range x.flushes {
		if err := flush(x.t.Context()); err != nil {
			x.t.Fatalf("export: %v", err)
		}
	}
}

// Write takes a log line of any instance.
func (x *telemetry) Write(line []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.log.Write(line)
}

// lines returns the log lines that begin with a message.
func (x *telemetry) lines(message string) (found []map[string]any) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for line := range bytes.Lines(x.log.Bytes()) {
		var attrs map[string]any
		if err := json.Unmarshal(line, &attrs); err != nil {
			x.t.Fatal(err)
		}
		if strings.HasPrefix(attrs["msg"].(string), message) {
			found = append(found, attrs)
		}
	}
	return found
}
