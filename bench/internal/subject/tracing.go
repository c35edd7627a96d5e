package subject

import (
	"context"
	"errors"

	nometrics "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	nospans "go.opentelemetry.io/otel/trace/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/tracing"
)

// The subjects that tell the cost of tracing. All of them are this library on one Redis.
const (
	Unobserved = "belugalock, no Observer"
	// TracingOff has an Observer on providers that record nothing.
	TracingOff = "belugalock, tracing off"
	// TracingOn has an Observer on the SDK, with spans and metrics. A batch processor exports the spans to
	// an exporter that discards them.
	TracingOn = "belugalock, tracing on"
	// TracingSync exports each span in the goroutine that ends it.
	TracingSync = "belugalock, tracing on, no batch"
	// Woken has an Observer that only wakes another goroutine, as the batch processor does.
	Woken = "belugalock, a goroutine woken"
)

func openTracingOff(s Setup) (Locker, error) {
	observer, err := tracing.New(tracing.WithTracerProvider(nospans.NewTracerProvider()),
		tracing.WithMeterProvider(nometrics.NewMeterProvider()))
	if err != nil {
		return nil, err
	}
	return openObserved(s, observer)
}

func openTracingOn(s Setup) (Locker, error) {
	return openSDK(s, sdktrace.WithBatcher(tracetest.NewNoopExporter()))
}

func openTracingSync(s Setup) (Locker, error) {
	return openSDK(s, sdktrace.WithSyncer(tracetest.NewNoopExporter()))
}

func openSDK(s Setup, processor sdktrace.TracerProviderOption) (Locker, error) {
	spans := sdktrace.NewTracerProvider(processor)
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	observer, err := tracing.New(tracing.WithTracerProvider(spans), tracing.WithMeterProvider(metrics))
	if err != nil {
		return nil, err
	}
	l, err := openObserved(s, observer)
	if err != nil {
		return nil, errors.Join(err, spans.Shutdown(context.Background()))
	}
	return traced{l, spans}, nil
}

// traced closes the provider after the Locker.
type traced struct {
	Locker
	spans *sdktrace.TracerProvider
}

func (t traced) Close() error {
	return errors.Join(t.Locker.Close(), t.spans.Shutdown(context.Background()))
}

// waker is an Observer.
type waker chan struct{}

func (w waker) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (w waker) End(context.Context, *distlock.Operation)                         { w <- struct{}{} }

// woken ends the goroutine after the Locker.
type woken struct {
	Locker
	waker
}

func openWoken(s Setup) (Locker, error) {
	w := make(waker, 64)
	l, err := openObserved(s, w)
	if err != nil {
		return nil, err
	}
	go func() {
		for range w {
		}
	}()
	return woken{l, w}, nil
}

func (w woken) Close() error {
	defer close(w.waker)
	return w.Locker.Close()
}
