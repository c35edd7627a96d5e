package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/tracing"
)

// measured makes a setup whose metrics go to a reader.
func measured(t *testing.T) (*setup, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	return newSetup(t, tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))), reader
}

// point is one data point: a histogram's number and sum, or the value of a counter.
type point struct {
	count uint64
	sum   float64
}

// collect returns all data points by metric and attributes, as "distlock.lost backend=memory". It leaves
// out the default namespace.
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]point {
	t.Helper()
	points := make(map[string]point)
	add := func(name string, attrs attribute.Set, p point) {
		for _, a := range attrs.ToSlice() {
			if a.Key == "distlock.namespace" && a.Value.AsString() == "distlock" {
				continue
			}
			name += " " + strings.TrimPrefix(string(a.Key), "distlock.") + "=" + a.Value.AsString()
		}
		points[name] = p
	}
	for _, m := range gather(t, reader) {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, point{sum: float64(p.Value)})
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, point{p.Count, p.Sum})
			}
		}
	}
	return points
}

func gather(t *testing.T, reader *sdkmetric.ManualReader) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	must(t, reader.Collect(context.Background(), &all))
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != tracing.Scope {
		t.Fatalf("metrics %+v, want those of one scope", all.ScopeMetrics)
	}
	return all.ScopeMetrics[0].Metrics
}

func TestMetrics_countCallsAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reader := measured(t)
		are := func(want map[string]point) {
			t.Helper()
			points := collect(t, reader)
			for name, p := range want {
				if got, there := points["distlock."+name]; !there || got != p {
					t.Errorf("%s is %v, %t, want %v", name, got, there, p)
				}
			}
		}
		lease, err := s.locker.Acquire(t.Context(), session)
		must(t, err)
		go func() {
			must(t, s.locker.Do(t.Context(), session, func(context.Context) error { time.Sleep(2 * time.Second); return nil }))
		}()
		time.Sleep(500 * time.Millisecond)
		are(map[string]point{
			"acquire.duration backend=memory handoff=none outcome=acquired": {1, 0},
			"held backend=memory":    {sum: 1},
			"waiters backend=memory": {sum: 1},
		})
		must(t, lease.Release(t.Context()))
		must(t, lease.Release(t.Context()))
		time.Sleep(time.Second)
		are(map[string]point{
			"acquire.duration backend=memory handoff=none outcome=acquired":   {1, 0},
			"acquire.duration backend=memory handoff=remote outcome=acquired": {1, 0.5},
			"hold.duration backend=memory":                                    {1, 0.5},
			"held backend=memory":                                             {sum: 1},
			"waiters backend=memory":                                          {},
		})
		time.Sleep(2 * time.Second)
		are(map[string]point{"held backend=memory": {}, "hold.duration backend=memory": {2, 2.5}})
	})
}

// Each loss counts once: by the deadline, and by the release that finds it.
func TestMetrics_losses(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *setup, lease *distlock.Lease){
		"deadline": func(t *testing.T, s *setup, lease *distlock.Lease) {
			s.broken()
			<-lease.Context().Done()
		},
		"release": func(t *testing.T, s *setup, lease *distlock.Lease) {
			take(t, s.faults.Driver, lease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, reader := measured(t)
				lease, err := s.locker.Acquire(t.Context(), session)
				must(t, err)
				lose(t, s, lease)
				for range 2 {
					if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
						t.Errorf("Release: %v, want ErrLost", err)
					}
				}
				synctest.Wait()
				points := collect(t, reader)
				if points["distlock.lost backend=memory"].sum != 1 || points["distlock.hold.duration backend=memory"].count != 1 ||
					points["distlock.held backend=memory"].sum != 0 {
					t.Errorf("a lost lease makes %v", points)
				}
			})
		})
	}
}

// take gives the lock of a lease to another owner, for a moment.
func take(t *testing.T, d driver.Driver, lease *distlock.Lease) {
	t.Helper()
	name := driver.Name{Namespace: "distlock", Key: lease.Key()}
	breaker, _ := driver.As[driver.Breaker](d)
	_, err := breaker.Break(context.Background(), name, lease.Fence())
	_, failure := d.Acquire(context.Background(), driver.AcquireRequest{Name: name, Owner: "thief", TTL: distlock.MinTTL})
	_, last := d.Release(context.Background(), driver.ReleaseRequest{Name: name, Owner: "thief"})
	if err := errors.Join(err, failure, last); err != nil {
		t.Errorf("take the lock: %v", err)
	}
}

// A renewal that fails counts by its outcome. A successful one, and an Extend by a caller, do not count.
func TestMetrics_renewalFailures(t *testing.T) {
	for outcome, err := range map[string]error{"unavailable": driver.ErrTemporary, "refused": driver.ErrRefused} {
		synctest.Test(t, func(t *testing.T) {
			s, reader := measured(t)
			lease, failure := s.locker.Acquire(t.Context(), session)
			must(t, failure)
			time.Sleep(400 * time.Millisecond) // one renewal succeeds
			s.faults.Inject(func(c drivertest.Call) drivertest.Fault {
				if c.Op == drivertest.Extend && c.N < 3 {
					return drivertest.Fault{Before: err}
				}
				return drivertest.Fault{}
			})
			if lease.Extend(t.Context(), time.Second) == nil {
				t.Error("Extend without an error")
			}
			time.Sleep(2 * time.Second) // the second try succeeds
			must(t, lease.Release(t.Context()))
			points := collect(t, reader)
			for name, p := range points {
				failed := map[bool]float64{true: 1}[strings.HasSuffix(name, " outcome="+outcome)]
				if strings.HasPrefix(name, "distlock.renew.failures") && p.sum != failed {
					t.Errorf("one renewal was %s, but %s is %v", outcome, name, p.sum)
				}
			}
		})
	}
}

// The counters of a backend exist before their first event, for queries of a rise.
func TestMetrics_countersBeginAtZero(t *testing.T) {
	s, reader := measured(t)
	_, err := s.locker.Acquire(t.Context(), session)
	must(t, err)
	points := collect(t, reader)
	for _, name := range []string{
		"distlock.lost", "sessionstore.stale_writes", "sessionstore.conflicts", "lockedmemory.interrupted_turns",
		"distlock.renew.failures outcome=unavailable", "distlock.renew.failures outcome=refused",
		"distlock.renew.failures outcome=unknown", "distlock.renew.failures outcome=lost",
		"distlock.renew.failures outcome=failed",
	} {
		name = strings.Replace(name+" ", " ", " backend=memory ", 1)
		if p, there := points[strings.TrimSpace(name)]; !there || p.sum != 0 {
			t.Errorf("%s is %v, %t, want 0", name, p, there)
		}
	}
}

// Lockers that share a Tracing are different series, but not without bound.
func TestMetrics_namespaces(t *testing.T) {
	const lockers = 30
	reader := sdkmetric.NewManualReader()
	observer, err := tracing.New(tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	must(t, err)
	for i := range lockers {
		l, err := memlock.New(&distlock.Options{Observer: observer, Namespace: fmt.Sprint("tenant-", i)})
		must(t, err)
		must(t, l.Do(t.Context(), "k", func(context.Context) error { return nil }))
		must(t, l.Close(t.Context()))
	}
	points := collect(t, reader)
	for name, count := range map[string]uint64{"tenant-0": 1, "tenant-19": 1, "tenant-20": 0, "other": lockers - 20} {
		name = "distlock.hold.duration backend=memory namespace=" + name
		if points[name].count != count {
			t.Errorf("%s: %d, want %d", name, points[name].count, count)
		}
	}
}

// No operation adds an attribute to the three, and none of them has the key: a backend has at most 24
// series of a namespace.
func TestMetrics_atMost24AttributeSets(t *testing.T) {
	s, reader := measured(t)
	observer := fencing.Options(s.locker).Observer
	for name, outcomes := range map[string][]distlock.Outcome{
		distlock.OpAcquire: {distlock.OutcomeBusy, distlock.OutcomeCancelled, distlock.OutcomeFailed, distlock.OutcomeLost,
			distlock.OutcomeRefused, distlock.OutcomeTimeout, distlock.OutcomeUnavailable, distlock.OutcomeUnknown},
		distlock.OpExtend: {distlock.OutcomeCancelled, distlock.OutcomeFailed, distlock.OutcomeLost, distlock.OutcomeRefused,
			distlock.OutcomeUnavailable, distlock.OutcomeUnknown},
		distlock.OpRelease:   {distlock.OutcomeDone},
		distlock.OpLost:      {distlock.OutcomeLost},
		lockedmemory.OpSave:  {distlock.OutcomeStale},
		lockedmemory.OpClear: {distlock.OutcomeConflict},
		lockedmemory.OpTurn:  {distlock.OutcomeDone, distlock.OutcomeInterrupted},
		lockedmemory.OpPut:   {distlock.OutcomeDone, distlock.OutcomeInterrupted},
	} {
		ops := []distlock.Operation{}
		for _, outcome := range outcomes {
			ops = append(ops, distlock.Operation{Outcome: outcome, Scheduled: name == distlock.OpExtend})
		}
		if name == distlock.OpAcquire {
			for _, from := range []distlock.Handoff{distlock.HandoffNone, distlock.HandoffLocal, distlock.HandoffRemote} {
				ops = append(ops, distlock.Operation{Outcome: distlock.OutcomeAcquired, Handoff: from})
			}
		}
		for _, op := range ops {
			op.Name, op.Backend, op.Namespace, op.Key = name, "memory", "distlock", session
			observer.End(observer.Start(t.Context(), &op), &op)
		}
	}
	points := collect(t, reader)
	acquires := 0
	for name := range points {
		if strings.HasPrefix(name, "distlock.acquire.duration ") {
			acquires++
		}
		for _, attr := range strings.Fields(name)[1:] {
			key, _, _ := strings.Cut(attr, "=")
			if !slices.Contains([]string{"backend", "outcome", "handoff"}, key) {
				t.Errorf("%s has the attribute %s", name, key)
			}
		}
	}
	if acquires != 11 || len(points) > 24 {
		t.Errorf("%d attribute sets, %d of calls of Acquire: %q", len(points), acquires, slices.Sorted(maps.Keys(points)))
	}
	for _, name := range []string{"sessionstore.stale_writes", "sessionstore.conflicts", "lockedmemory.interrupted_turns"} {
		if got := points[name+" backend=memory"].sum; got != 1 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

// A measurement of a sampled span leads to the span.
func TestMetrics_exemplarsAreTheSpans(t *testing.T) {
	s, reader := measured(t)
	must(t, s.locker.Do(t.Context(), session, func(context.Context) error { return nil }))
	exemplars := make(map[string][]metricdata.Exemplar[float64])
	for _, m := range gather(t, reader) {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
			exemplars[m.Name] = data.DataPoints[0].Exemplars
		}
	}
	for name, operation := range map[string]string{
		"distlock.acquire.duration": "distlock.acquire", "distlock.hold.duration": "distlock.release",
	} {
		span := s.span(t, operation).SpanContext
		trace, id := span.TraceID(), span.SpanID()
		if got := exemplars[name]; len(got) != 1 || string(got[0].TraceID) != string(trace[:]) ||
			string(got[0].SpanID) != string(id[:]) {
			t.Errorf("%s has the exemplars %v, want the span %v", name, got, span)
		}
	}
}
