package check

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/belugalock/belugalock/distlock"
)

// standin makes the metrics of observing.md until tracing does.
type standin struct {
	mu                               sync.Mutex
	acquire, hold                    metric.Float64Histogram
	waiters, held                    metric.Int64UpDownCounter
	lost, renewals, stale, conflicts metric.Int64Counter
	seeded                           bool
}

func newStandin(p metric.MeterProvider) *standin {
	m := p.Meter("beluga.memory.distlock")
	s := &standin{}
	b := metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
	s.acquire, _ = m.Float64Histogram("distlock.acquire.duration", metric.WithUnit("s"), b)
	s.hold, _ = m.Float64Histogram("distlock.hold.duration", metric.WithUnit("s"), b)
	s.waiters, _ = m.Int64UpDownCounter("distlock.waiters", metric.WithUnit("{call}"))
	s.held, _ = m.Int64UpDownCounter("distlock.held", metric.WithUnit("{lease}"))
	s.lost, _ = m.Int64Counter("distlock.lost", metric.WithUnit("{lease}"))
	s.renewals, _ = m.Int64Counter("distlock.renew.failures", metric.WithUnit("{renewal}"))
	s.stale, _ = m.Int64Counter("sessionstore.stale_writes", metric.WithUnit("{write}"))
	s.conflicts, _ = m.Int64Counter("sessionstore.conflicts", metric.WithUnit("{write}"))
	return s
}

func (s *standin) Start(ctx context.Context, op *distlock.Operation) context.Context {
	b := attribute.String("distlock.backend", op.Backend)
	s.mu.Lock()
	if !s.seeded {
		s.seeded = true
		for _, c := range []metric.Int64Counter{s.lost, s.stale, s.conflicts} {
			c.Add(ctx, 0, metric.WithAttributes(b))
		}
		for _, o := range []string{"unavailable", "refused", "unknown", "lost", "failed"} {
			s.renewals.Add(ctx, 0, metric.WithAttributes(b, attribute.String("distlock.outcome", o)))
		}
	}
	s.mu.Unlock()
	if op.Name == distlock.OpAcquire {
		s.waiters.Add(ctx, 1, metric.WithAttributes(b))
	}
	return ctx
}

func (s *standin) End(ctx context.Context, op *distlock.Operation) {
	b, o := attribute.String("distlock.backend", op.Backend), attribute.String("distlock.outcome", string(op.Outcome))
	only := metric.WithAttributes(b)
	if op.Name == distlock.OpAcquire {
		s.waiters.Add(ctx, -1, only)
		s.acquire.Record(ctx, op.Wait.Seconds(), metric.WithAttributes(b, o, attribute.String("distlock.handoff", string(op.Handoff))))
		if op.Outcome == distlock.OutcomeAcquired {
			s.held.Add(ctx, 1, only)
		}
	}
	if op.Ended {
		s.held.Add(ctx, -1, only)
		s.hold.Record(ctx, op.Held.Seconds(), only)
		if op.Outcome == distlock.OutcomeLost {
			s.lost.Add(ctx, 1, only)
		}
	}
	if op.Name == distlock.OpExtend && op.Scheduled && op.Err != nil {
		s.renewals.Add(ctx, 1, metric.WithAttributes(b, o))
	}
	if op.Outcome == distlock.OutcomeStale {
		s.stale.Add(ctx, 1, only)
	}
	if op.Outcome == distlock.OutcomeConflict {
		s.conflicts.Add(ctx, 1, only)
	}
}
