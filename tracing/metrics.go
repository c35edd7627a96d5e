package tracing

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// bounds are the upper bounds of the histograms' buckets in seconds: from one request to a server nearby
// to a long turn.
var bounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// renewalFailures are the outcomes of renewals that fail.
var renewalFailures = []distlock.Outcome{distlock.OutcomeUnavailable, distlock.OutcomeRefused,
	distlock.OutcomeUnknown, distlock.OutcomeLost, distlock.OutcomeFailed}

// mostNamespaces bounds the values of the attribute distlock.namespace. All further namespaces are other.
const (
	mostNamespaces = 20
	otherNamespace = "other"
)

// metrics measures operations. A nil *metrics measures nothing.
type metrics struct {
	acquire, hold                                 metric.Float64Histogram
	waiters, held                                 metric.Int64UpDownCounter
	lost, renewals, stale, conflicts, interrupted metric.Int64Counter

	mu         sync.Mutex
	made       map[labels]*options
	namespaces map[string]bool
}

// labels are the attributes of a measurement. An empty one is left out.
type labels struct {
	namespace, backend string
	outcome            distlock.Outcome
	handoff            distlock.Handoff
}

// options are those of a measurement with its attributes. They are made once: a measurement allocates
// nothing.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// newMetrics returns nil if the meter measures nothing.
func newMetrics(meter metric.Meter) (*metrics, error) {
	if _, off := meter.(noop.Meter); off {
		return nil, nil
	}
	m := &metrics{made: make(map[labels]*options), namespaces: make(map[string]bool)}
	var errs [9]error
	m.acquire, errs[0] = meter.Float64Histogram("distlock.acquire.duration", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(bounds...), metric.WithDescription("Time from the call of Acquire to its end."))
	m.hold, errs[1] = meter.Float64Histogram("distlock.hold.duration", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(bounds...), metric.WithDescription("Time from the grant of a lease to its end."))
	m.waiters, errs[2] = meter.Int64UpDownCounter("distlock.waiters", metric.WithUnit("{call}"),
		metric.WithDescription("Calls of Acquire that have not ended."))
	m.held, errs[3] = meter.Int64UpDownCounter("distlock.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that have not ended."))
	m.lost, errs[4] = meter.Int64Counter("distlock.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended by a loss."))
	m.renewals, errs[5] = meter.Int64Counter("distlock.renew.failures", metric.WithUnit("{renewal}"),
		metric.WithDescription("Scheduled renewals that failed."))
	m.stale, errs[6] = meter.Int64Counter("sessionstore.stale_writes", metric.WithUnit("{write}"),
		metric.WithDescription("Writes that the store refused because a later lease had written."))
	m.conflicts, errs[7] = meter.Int64Counter("sessionstore.conflicts", metric.WithUnit("{write}"),
		metric.WithDescription("Writes that the store refused because their ID was used for other messages."))
	m.interrupted, errs[8] = meter.Int64Counter("lockedmemory.interrupted_turns", metric.WithUnit("{turn}"),
		metric.WithDescription("Turns that a Stop or a newer message has ended."))
	return m, errors.Join(errs[:]...)
}

// start measures an operation that begins under ctx, which has its span.
func (m *metrics) start(ctx context.Context, op *distlock.Operation) {
	if m != nil && op.Name == distlock.OpAcquire {
		m.waiters.Add(ctx, 1, m.optionsFor(labels{namespace: op.Namespace, backend: op.Backend}).add...)
	}
}

// end measures an operation that has ended under ctx, which has its span.
func (m *metrics) end(ctx context.Context, op *distlock.Operation) {
	if m == nil {
		return
	}
	with := labels{namespace: op.Namespace, backend: op.Backend}
	backend := m.optionsFor(with)
	with.outcome = op.Outcome
	switch op.Name {
	case distlock.OpAcquire:
		m.waiters.Add(ctx, -1, backend.add...)
		if op.Outcome == distlock.OutcomeAcquired {
			m.held.Add(ctx, 1, backend.add...)
			with.handoff = op.Handoff
		}
		m.acquire.Record(ctx, op.Wait.Seconds(), m.optionsFor(with).record...)
	case lockedmemory.OpTurn, lockedmemory.OpAnswer, lockedmemory.OpAnswerAll:
		if op.Outcome == distlock.OutcomeInterrupted {
			m.interrupted.Add(ctx, 1, backend.add...)
		}
	case distlock.OpExtend:
		if op.Scheduled && isError(op.Outcome) {
			m.renewals.Add(ctx, 1, m.optionsFor(with).add...)
		}
	}
	if op.Ended {
		m.held.Add(ctx, -1, backend.add...)
		m.hold.Record(ctx, op.Held.Seconds(), backend.record...)
		if op.Outcome == distlock.OutcomeLost { // also if the release found the loss
			m.lost.Add(ctx, 1, backend.add...)
		}
	}
	switch op.Outcome { // of writes alone
	case distlock.OutcomeStale:
		m.stale.Add(ctx, 1, backend.add...)
	case distlock.OutcomeConflict:
		m.conflicts.Add(ctx, 1, backend.add...)
	}
}

// optionsFor returns the options of measurements with the labels.
func (m *metrics) optionsFor(with labels) *options {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := m.made[with]
	if made == nil {
		with.namespace = m.boundedLocked(with.namespace)
		made = m.made[with]
	}
	if made == nil {
		made = m.makeLocked(with)
		if with.outcome == "" {
			m.zeroLocked(with, made)
		}
	}
	return made
}

func (m *metrics) boundedLocked(namespace string) string {
	if !m.namespaces[namespace] && len(m.namespaces) == mostNamespaces {
		return otherNamespace
	}
	m.namespaces[namespace] = true
	return namespace
}

func (m *metrics) makeLocked(with labels) *options {
	attrs := []attribute.KeyValue{attribute.String("distlock.backend", with.backend)}
	if with.namespace != "" {
		attrs = append(attrs, attribute.String("distlock.namespace", with.namespace))
	}
	if with.outcome != "" {
		attrs = append(attrs, attribute.String("distlock.outcome", string(with.outcome)))
	}
	if with.handoff != "" {
		attrs = append(attrs, attribute.String("distlock.handoff", string(with.handoff)))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	made := &options{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	m.made[with] = made
	return made
}

// zeroLocked makes the counters of a backend exist before their first event. A query of a rise sees no
// rise from nothing to 1.
func (m *metrics) zeroLocked(with labels, made *options) {
	ctx := context.Background() // no exemplar
	for _, counter := range []metric.Int64Counter{m.lost, m.stale, m.conflicts, m.interrupted} {
		counter.Add(ctx, 0, made.add...)
	}
	for _, with.outcome = range renewalFailures {
		m.renewals.Add(ctx, 0, m.makeLocked(with).add...)
	}
}
