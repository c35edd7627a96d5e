package tracing_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/tracing"
)

// gauge is an up-down counter that keeps its extremes.
type gauge struct {
	noop.Int64UpDownCounter
	mu                     sync.Mutex
	value, lowest, highest int64
}

func (g *gauge) Add(_ context.Context, n int64, _ ...metric.AddOption) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value += n
	g.lowest, g.highest = min(g.lowest, g.value), max(g.highest, g.value)
}

// gauges is a meter of gauges by name, and the provider of itself.
type gauges map[string]*gauge

type gaugeMeter struct {
	noop.Meter
	gauges
}

func (m gaugeMeter) Int64UpDownCounter(name string,
	_ ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	m.gauges[name] = &gauge{}
	return m.gauges[name], nil
}

type gaugeProvider struct {
	noop.MeterProvider
	gauges
}

func (p gaugeProvider) Meter(string, ...metric.MeterOption) metric.Meter {
	return gaugeMeter{gauges: p.gauges}
}

// Handoffs, losses, lost answers, busy and cancelled calls, repeated releases, and Close at last: the
// number of leases and that of waiters never fall below zero, and return to zero.
func TestMetrics_hammer_heldAndWaitersReturnToZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := drivertest.NewFaults(memlock.NewDriver())
		faults.Inject(func(drivertest.Call) drivertest.Fault {
			switch rand.N(30) {
			case 0:
				return drivertest.Fault{Before: errBroken}
			case 1:
				return drivertest.Fault{After: errBroken}
			}
			return drivertest.Fault{}
		})
		seen := gauges{}
		observer, err := tracing.New(tracing.WithMeterProvider(gaugeProvider{gauges: seen}))
		must(t, err)
		locker, err := distlock.New(faults, &distlock.Options{Observer: observer, TTL: 200 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		closing, stop := context.WithCancel(t.Context())
		var hammers sync.WaitGroup
		for range 16 {
			hammers.Go(func() {
				for closing.Err() == nil {
					use(t, locker, faults)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if err := locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		hammers.Wait()
		for name, least := range map[string]int64{"distlock.waiters": 5, "distlock.held": 2} {
			g := seen[name]
			if g.value != 0 || g.lowest < 0 || g.highest < least {
				t.Errorf("%s was between %d and %d and is %d, want 0 to at least %d and 0",
					name, g.lowest, g.highest, g.value, least)
			}
		}
	})
}

// use acquires a lock, and may lose it.
func use(t *testing.T, locker *distlock.Locker, faults *drivertest.Faults) {
	ctx, cancel := context.WithTimeout(t.Context(), 1+rand.N(100*time.Millisecond))
	defer cancel()
	acquire := locker.Acquire
	if rand.N(4) == 0 {
		acquire = locker.TryAcquire
	}
	lease, err := acquire(ctx, strconv.Itoa(rand.N(3)))
	time.Sleep(1 + rand.N(20*time.Millisecond))
	if err != nil {
		return
	}
	switch rand.N(6) {
	case 0:
		take(t, faults.Driver, lease)
	case 1:
		time.Sleep(time.Second) // a renewal may fail
	}
	for range 1 + rand.N(2) {
		_ = lease.Release(ctx)
	}
}
