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
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/belugalock/belugalock/internal/test/incidents"
	"github.com/belugalock/belugalock/tracing"
)

// telemetry exports what the instances of a scene report, each with a resource of its own.
type telemetry struct {
	t       *testing.T
	to      *collector
	flushes []func(context.Context) error

	mu  sync.Mutex
	log bytes.Buffer
}

// of is the telemetry of an instance.
func (x *telemetry) of(instance string) incidents.Telemetry {
	t := x.t
	t.Helper()
	spans, err := otlptracehttp.New(t.Context(), otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(x.to.http))
	must(t, err)
	metrics, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithEndpoint(x.to.http))
	must(t, err)
	of := resource.NewSchemaless(attribute.String("service.name", "agent"),
		attribute.String("service.instance.id", instance))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(of))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)),
		sdkmetric.WithResource(of))
	t.Cleanup(func() {
		must(t, errors.Join(tracers.Shutdown(context.Background()), meters.Shutdown(context.Background())))
	})
	x.flushes = append(x.flushes, tracers.ForceFlush, meters.ForceFlush)
	observer, err := tracing.New(tracing.WithTracerProvider(tracers), tracing.WithMeterProvider(meters))
	must(t, err)
	lines := tracing.LogHandler(slog.NewJSONHandler(x, nil)).WithAttrs([]slog.Attr{slog.String("instance", instance)})
	return incidents.Telemetry{Observer: observer, Tracer: tracers.Tracer("application"), Logger: slog.New(lines)}
}

// flush returns when the collector has all earlier reports.
func (x *telemetry) flush() {
	x.t.Helper()
	for _, flush := range x.flushes {
		must(x.t, flush(x.t.Context()))
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
		must(x.t, json.Unmarshal(line, &attrs))
		if strings.HasPrefix(attrs["msg"].(string), message) {
			found = append(found, attrs)
		}
	}
	return found
}
