// Package collectortest sends the telemetry of a contended run to the OTLP receiver of the
// OpenTelemetry Collector. Tests look for the answers that
// docs/howto/tracing-and-metrics.md promises.
package collectortest

import (
	"context"
	"net"
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
	http    string // host and port
	traces  consumertest.TracesSink
	metrics consumertest.MetricsSink
}

// startCollector starts a receiver on free ports of 127.0.0.1.
func startCollector(t *testing.T) *collector {
	t.Helper()
	var err error
	for range 10 { // another process may take a port that was free
		var l net.Listener
		l, err = servers.Listen()
		must(t, err)
		c := &collector{http: l.Addr().String()}
		must(t, l.Close())
		if err = c.start(t); err == nil {
			return c
		}
	}
	t.Fatalf("start the receiver: %v", err)
	return nil
}

func (c *collector) start(t *testing.T) error {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"http": map[string]any{"endpoint": c.http},
	}}).Unmarshal(config)
	must(t, err)
	// Both receivers share their servers, because they have one configuration.
	settings := receivertest.NewNopSettings(factory.Type())
	traces, err := factory.CreateTraces(t.Context(), settings, config, &c.traces)
	must(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, config, &c.metrics)
	must(t, err)
	for _, receiver := range []component.Component{traces, metrics} {
		if err := receiver.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			_ = receiver.Shutdown(t.Context())
			return err
		}
		t.Cleanup(func() { must(t, receiver.Shutdown(context.Background())) })
	}
	return nil
}
