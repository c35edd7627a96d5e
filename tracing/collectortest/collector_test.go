// Package collectortest sends the telemetry of a contended run to the OTLP receiver of the
// OpenTelemetry Collector, over gRPC and over HTTP. Tests look for the answers that
// docs/howto/tracing-and-metrics.md promises.
package collectortest

import (
	"context"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// collector is the Collector's OTLP receiver with a sink behind it.
type collector struct {
	grpc, http string // host and port
	traces     consumertest.TracesSink
	metrics    consumertest.MetricsSink
}

// startCollector starts a receiver on free ports of 127.0.0.1.
func startCollector(t *testing.T) *collector {
	t.Helper()
	var err error
	for range 10 { // another process may take a port that was free
		c := &collector{grpc: freeAddress(t), http: freeAddress(t)}
		if err = c.start(t); err == nil {
			return c
		}
	}
	t.Fatalf("start the receiver: %v", err)
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := servers.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *collector) start(t *testing.T) error {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": c.grpc}, "http": map[string]any{"endpoint": c.http},
	}}).Unmarshal(config)
	if err != nil {
		t.Fatal(err)
	}
	// Both receivers share their servers, because they have one configuration.
	settings := receivertest.NewNopSettings(factory.Type())
	traces, err := factory.CreateTraces(t.Context(), settings, config, &c.traces)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, &c.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, receiver := range []component.Component{traces, metrics} {
		if err := receiver.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			_ = receiver.Shutdown(t.Context())
			return err
		}
		t.Cleanup(func() {
			if err := receiver.Shutdown(context.Background()); err != nil {
				t.Errorf("stop the receiver: %v", err)
			}
		})
	}
	return nil
}
