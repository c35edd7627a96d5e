package collectortest

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/tracing"
)

// span is one received span.
type span struct {
	ptrace.Span
	instance pcommon.Map // the attributes of its resource
}

// text returns an attribute as text; "": the span does not have it.
func (s span) text(key string) string { return text(s.Attributes(), key) }

func text(of pcommon.Map, key string) string {
	if v, ok := of.Get(key); ok {
		return v.AsString()
	}
	return ""
}

// events returns how many events have a property.
func (s span) events(has func(ptrace.SpanEvent) bool) (n int) {
	for _, e := range s.Events().All() {
		if has(e) {
			n++
		}
	}
	return n
}

// ms returns an attribute in milliseconds as a duration; -1: the span does not have it.
func (s span) ms(key string) time.Duration {
	v, ok := s.Attributes().Get(key)
	if !ok {
		return -1
	}
	return time.Duration(v.Double() * float64(time.Millisecond))
}

// spans returns the received spans that have all the properties.
func (c *collector) spans(properties ...func(span) bool) (found []span) {
	for _, batch := range c.traces.AllTraces() {
		for _, resource := range batch.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					one := span{s, resource.Resource().Attributes()}
					if !slices.ContainsFunc(properties, func(has func(span) bool) bool { return !has(one) }) {
						found = append(found, one)
					}
				}
			}
		}
	}
	return found
}

func named(name string) func(span) bool { return func(s span) bool { return s.Name() == name } }

func inTrace[ID ~[16]byte](id ID) func(span) bool {
	return func(s span) bool { return [16]byte(s.TraceID()) == [16]byte(id) }
}

// about selects the spans of a session.
func about(key string) func(span) bool {
	return func(s span) bool { return s.text("lock_key") == distlock.KeyHashed.Show(key) }
}

// point is one received point of a metric.
type point struct {
	attributes pcommon.Map
	value      float64                    // of a sum, or the number of measurements of a histogram
	histogram  pmetric.HistogramDataPoint // of a histogram
	exemplars  pmetric.ExemplarSlice
}

// points returns the newest points of a metric of an instance.
func (c *collector) points(instance, metric string) (newest []point) {
	for _, batch := range c.metrics.AllMetrics() {
		for _, resource := range batch.ResourceMetrics().All() {
			if text(resource.Resource().Attributes(), "service.instance.id") != instance {
				continue
			}
			for _, scope := range resource.ScopeMetrics().All() {
				for _, m := range scope.Metrics().All() {
					if m.Name() == metric && scope.Scope().Name() == tracing.Scope {
						newest = pointsOf(m) // of all attribute sets: the SDK's sums are cumulative
					}
				}
			}
		}
	}
	return newest
}

func pointsOf(m pmetric.Metric) (points []point) {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			points = append(points, point{attributes: p.Attributes(), value: float64(p.IntValue()), exemplars: p.Exemplars()})
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			points = append(points, point{p.Attributes(), float64(p.Count()), p, p.Exemplars()})
		}
	}
	return points
}

// sum adds the newest points of a metric of an instance that have an outcome; "": all.
func (c *collector) sum(instance, metric string, outcome distlock.Outcome) (sum int) {
	for _, p := range c.points(instance, metric) {
		if outcome == "" || text(p.attributes, "distlock.outcome") == string(outcome) {
			sum += int(p.value)
		}
	}
	return sum
}
