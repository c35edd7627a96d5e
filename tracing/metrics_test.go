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

// want fails the test unless the points are as listed. Counters that are zero may be left out.
func want(t *testing.T, got, want map[string]point) {
	t.Helper()
	got = maps.Clone(got)
	maps.DeleteFunc(got, func(name string, p point) bool {
		_, listed := want[name]
		return p == point{} && !listed
	})
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
	}
	for name := range want {
		if _, there := got[name]; !there {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestMetrics_kindsUnitsBounds(t *testing.T) {
	s, reader := measured(t)
	must(t, s.locker.Do(t.Context(), session, func(context.Context) error { return nil }))
	var got []string
	for _, m := range gather(t, reader) {
		kind := ""
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = map[bool]string{true: "counter", false: "up-down"}[data.IsMonotonic]
		case metricdata.Histogram[float64]:
			bounds := data.DataPoints[0].Bounds
			kind = fmt.Sprint("histogram ", len(bounds), " ", bounds[0], " ", bounds[len(bounds)-1])
		}
		got = append(got, m.Name+" "+m.Unit+" "+kind)
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
	}
	slices.Sort(got)
	if want := []string{
		"distlock.acquire.duration s histogram 18 0.0005 300",
		"distlock.held {lease} up-down",
		"distlock.hold.duration s histogram 18 0.0005 300",
		"distlock.lost {lease} counter",
		"distlock.renew.failures {renewal} counter",
		"distlock.waiters {call} up-down",
		"sessionstore.conflicts {write} counter",
		"sessionstore.stale_writes {write} counter",
	}; !slices.Equal(got, want) {
		t.Errorf("metrics %q, want %q", got, want)
	}
}

func TestMetrics_countCallsAndLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reader := measured(t)
		lease, err := s.locker.Acquire(t.Context(), session)
		must(t, err)
		go func() {
			next, err := s.locker.Acquire(t.Context(), session)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(500 * time.Millisecond)
		want(t, collect(t, reader), map[string]point{
			"distlock.acquire.duration backend=memory handoff=none outcome=acquired": {1, 0},
			"distlock.held backend=memory":                                           {sum: 1},
			"distlock.waiters backend=memory":                                        {sum: 1},
		})
		must(t, lease.Release(t.Context()))
		must(t, lease.Release(t.Context()))
		time.Sleep(time.Second)
		want(t, collect(t, reader), map[string]point{
			"distlock.acquire.duration backend=memory handoff=none outcome=acquired":   {1, 0},
			"distlock.acquire.duration backend=memory handoff=remote outcome=acquired": {1, 0.5},
			"distlock.hold.duration backend=memory":                                    {1, 0.5},
			"distlock.held backend=memory":                                             {sum: 1},
			"distlock.waiters backend=memory":                                          {},
		})
		time.Sleep(2 * time.Second)
		points := collect(t, reader)
		if points["distlock.held backend=memory"] != (point{}) ||
			points["distlock.hold.duration backend=memory"] != (point{2, 2.5}) {
			t.Errorf("after all releases: %v", points)
		}
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
		"distlock.lost", "sessionstore.stale_writes", "sessionstore.conflicts",
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

// everything makes operations with every outcome and handoff.
func everything(t *testing.T, s *setup) {
	acquire := func(ctx context.Context, opts ...distlock.CallOption) *distlock.Lease {
		lease, _ := s.locker.Acquire(ctx, session, opts...)
		return lease
	}
	fault := func(fault drivertest.Fault) {
		s.faults.Inject(func(drivertest.Call) drivertest.Fault { return fault })
	}
	// For a local and a remote handoff.
	for _, held := range []time.Duration{time.Millisecond, 500 * time.Millisecond} {
		lease := acquire(t.Context())
		go func() {
			if err := acquire(t.Context()).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(held)
		must(t, lease.Release(t.Context()))
		synctest.Wait()
	}
	lease := acquire(t.Context())
	_, _ = s.locker.TryAcquire(t.Context(), session)
	acquire(t.Context(), distlock.WithWait(time.Millisecond))
	left, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	acquire(left)
	must(t, lease.Extend(t.Context(), time.Second))
	must(t, lease.Release(t.Context()))
	acquire(lease.Context()) // lost
	for _, failure := range []error{errBroken, driver.ErrTemporary, driver.ErrRefused} {
		fault(drivertest.Fault{})
		lease := acquire(t.Context())
		fault(drivertest.Fault{Before: failure})
		acquire(t.Context())
		time.Sleep(2 * time.Second) // renewals fail, and the lease is lost
		_ = lease.Release(t.Context())
	}
	s.faults.Inject(nil)
	stolen := acquire(t.Context())
	take(t, s.faults.Driver, stolen)
	time.Sleep(time.Second) // a renewal finds the loss
	s.faults.Inject(func(c drivertest.Call) drivertest.Fault {
		if c.Op == drivertest.Acquire {
			panic("driver")
		}
		return drivertest.Fault{}
	})
	func() {
		defer func() { _ = recover() }()
		acquire(t.Context())
	}()
	s.faults.Inject(nil)
	// Outcomes that no backend of this test can cause, and those of writes.
	observer := fencing.Options(s.locker).Observer
	for _, op := range []distlock.Operation{
		{Name: distlock.OpAcquire, Outcome: distlock.OutcomeUnknown},
		{Name: distlock.OpExtend, Scheduled: true, Outcome: distlock.OutcomeUnknown},
		{Name: distlock.OpExtend, Scheduled: true, Outcome: distlock.OutcomeFailed},
		{Name: distlock.OpExtend, Scheduled: true, Outcome: distlock.OutcomeCancelled},
		{Name: lockedmemory.OpSave, Outcome: distlock.OutcomeStale},
		{Name: lockedmemory.OpClear, Outcome: distlock.OutcomeConflict},
		{Name: lockedmemory.OpTurn, Outcome: distlock.OutcomeDone},
	} {
		op.Backend, op.Key = "memory", session
		observer.End(observer.Start(t.Context(), &op), &op)
	}
}

// No operation adds an attribute to the three. None of them has the key.
func TestMetrics_atMost24AttributeSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reader := measured(t)
		everything(t, s)
		points := collect(t, reader)
		var acquires []string
		for name := range points {
			if outcome, ok := strings.CutPrefix(name, "distlock.acquire.duration backend=memory "); ok {
				acquires = append(acquires, outcome)
			}
			for _, attr := range strings.Fields(name)[1:] {
				key, _, _ := strings.Cut(attr, "=")
				if !slices.Contains([]string{"backend", "outcome", "handoff"}, key) {
					t.Errorf("%s has the attribute %s", name, key)
				}
			}
		}
		slices.Sort(acquires)
		if want := []string{
			"handoff=local outcome=acquired", "handoff=none outcome=acquired", "handoff=remote outcome=acquired",
			"outcome=busy", "outcome=cancelled", "outcome=failed", "outcome=lost", "outcome=refused", "outcome=timeout",
			"outcome=unavailable", "outcome=unknown",
		}; !slices.Equal(acquires, want) {
			t.Errorf("calls of Acquire had %q, want %q", acquires, want)
		}
		for name, sum := range map[string]float64{"stale_writes": 1, "conflicts": 1} {
			if got := points["sessionstore."+name+" backend=memory"].sum; got != sum {
				t.Errorf("%s is %v", name, got)
			}
		}
		if len(points) > 24 {
			t.Errorf("%d attribute sets: %q", len(points), slices.Sorted(maps.Keys(points)))
		}
	})
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
