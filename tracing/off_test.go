package tracing_test

import (
	"context"
	"log/slog"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

var (
	noSpans   = tracing.WithTracerProvider(tracenoop.NewTracerProvider())
	noMetrics = tracing.WithMeterProvider(metricnoop.NewMeterProvider())
)

type callers struct{}

// observes returns the allocations of one Start and End of each operation.
func observes(t *testing.T, observer distlock.Observer) float64 {
	t.Helper()
	ctx := context.WithValue(t.Context(), callers{}, true)
	ops := []*distlock.Operation{
		{Name: distlock.OpAcquire, Outcome: distlock.OutcomeAcquired, Handoff: distlock.HandoffNone},
		{Name: distlock.OpAcquire, Outcome: distlock.OutcomeBusy, Blocker: map[string]string{"traceparent": "x"}},
		{Name: distlock.OpExtend, Scheduled: true, Outcome: distlock.OutcomeUnavailable, Err: errBroken},
		{Name: distlock.OpRelease, Outcome: distlock.OutcomeDone, Ended: true},
		{Name: distlock.OpLost, Outcome: distlock.OutcomeLost, Ended: true},
		{Name: lockedmemory.OpSave, Outcome: distlock.OutcomeStale, Err: errBroken},
	}
	return testing.AllocsPerRun(100, func() {
		for _, op := range ops {
			op.Backend, op.Key = "memory", session
			started := observer.Start(ctx, op)
			if started != ctx {
				t.Errorf("%s has a context of its own", op.Name)
			}
			if observer.End(started, op); op.Metadata != nil {
				t.Errorf("%s has metadata", op.Name)
			}
		}
	})
}

func TestTracing_off_noAllocation(t *testing.T) {
	off, err := tracing.New(noSpans, noMetrics)
	must(t, err)
	if n := observes(t, off); n != 0 || off.Enabled() {
		t.Errorf("%v allocations, enabled: %t", n, off.Enabled())
	}
}

// Without spans, the context is the caller's, and a measurement allocates nothing.
func TestTracing_metricsAlone_noAllocation(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	observer, err := tracing.New(noSpans,
		tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	must(t, err)
	if n := observes(t, observer); n != 0 || !observer.Enabled() {
		t.Errorf("%v allocations, enabled: %t", n, observer.Enabled())
	}
	if n := collect(t, reader)["sessionstore.stale_writes backend=memory"].sum; n != 101 { // one warms up
		t.Errorf("%v stale writes", n)
	}
}

// A Locker pays nothing for a Tracing that is off.
func TestTracing_off_LockerAllocatesNoMore(t *testing.T) {
	off, err := tracing.New(noSpans, noMetrics)
	must(t, err)
	allocations := func(observer distlock.Observer) float64 {
		locker, err := memlock.New(&distlock.Options{Observer: observer, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		defer locker.Close(t.Context())
		return testing.AllocsPerRun(500, func() {
			lease, err := locker.Acquire(t.Context(), session)
			must(t, err)
			must(t, lease.Release(t.Context()))
		})
	}
	// An Observer costs 2 or more.
	if without, with := allocations(nil), allocations(distlock.Observers(off)); with > without+1 {
		t.Errorf("acquire and release allocate %v times, without a Tracing %v times", with, without)
	}
}
