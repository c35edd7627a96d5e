// Package metrics shows the metrics of all instances on one page for Prometheus. An instance writes
// its metrics to the program that started it, so its last values stay when the instance has ended.
package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// every is the time between two pages of an instance.
const every = 500 * time.Millisecond

// Line is a line of an instance with its metrics.
type Line struct{ Metrics []byte }

// Provider is a meter provider that writes the metrics of an instance to the program.
type Provider struct {
	*sdkmetric.MeterProvider
	registry    *prometheus.Registry
	lines       *json.Encoder
	stop, ended chan struct{}
}

// NewProvider returns a provider that writes a Line to lines twice a second. Each series has the
// attributes of about as labels, but for the name of the service: Prometheus has the label job for it.
func NewProvider(lines io.Writer, about *resource.Resource) (*Provider, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutTargetInfo(), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithResourceAsConstantLabels(func(kv attribute.KeyValue) bool { return kv.Key != "service.name" }))
	if err != nil {
		return nil, err
	}
	p := &Provider{sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about)),
		registry, json.NewEncoder(lines), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(p.ended)
		for tick := time.NewTicker(every); ; {
			select {
			case <-p.stop:
				tick.Stop()
				return
			case <-tick.C:
				_ = p.write() // the last write returns the error
			}
		}
	}()
	return p, nil
}

// Shutdown writes the last values.
func (p *Provider) Shutdown(ctx context.Context) error {
	close(p.stop)
	<-p.ended
	return errors.Join(p.write(), p.MeterProvider.Shutdown(ctx))
}

func (p *Provider) write() error {
	families, err := p.registry.Gather()
	if err != nil {
		return err
	}
	// The binary format keeps exemplars.
	var page bytes.Buffer
	encoder := expfmt.NewEncoder(&page, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return err
		}
	}
	return p.lines.Encode(Line{page.Bytes()})
}
