package tracing_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/drivertest"
)

// Handoffs, losses, lost answers, busy and cancelled calls, repeated releases, and Close at last: the
// number of leases and that of waiters never fall below zero, and return to zero.
func TestMetrics_hammer_heldAndWaitersReturnToZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reader := measured(t)
		s.faults.Inject(func(drivertest.Call) drivertest.Fault {
			switch rand.N(30) {
			case 0:
				return drivertest.Fault{Before: errBroken}
			case 1:
				return drivertest.Fault{After: errBroken}
			}
			return drivertest.Fault{}
		})
		closing, stop := context.WithCancel(t.Context())
		var hammers sync.WaitGroup
		for range 16 {
			hammers.Go(func() {
				for closing.Err() == nil {
					use(t, s)
				}
			})
		}
		highest := map[string]float64{}
		look := func() (now []float64) {
			points := collect(t, reader)
			for _, name := range []string{"distlock.waiters backend=memory", "distlock.held backend=memory"} {
				if points[name].sum < 0 {
					t.Fatalf("%s is %v", name, points[name])
				}
				highest[name] = max(highest[name], points[name].sum)
				now = append(now, points[name].sum)
			}
			return now
		}
		for range 2000 {
			time.Sleep(5 * time.Millisecond)
			look()
		}
		must(t, s.locker.Close(t.Context()))
		stop()
		hammers.Wait()
		if now := look(); now[0] != 0 || now[1] != 0 {
			t.Errorf("%v waiters and leases are left", now)
		}
		if highest["distlock.waiters backend=memory"] < 5 || highest["distlock.held backend=memory"] < 2 {
			t.Errorf("at most there were %v", highest)
		}
	})
}

// use acquires a lock, and may lose it.
func use(t *testing.T, s *setup) {
	ctx, cancel := context.WithTimeout(t.Context(), 1+rand.N(100*time.Millisecond))
	defer cancel()
	acquire := s.locker.Acquire
	if rand.N(4) == 0 {
		acquire = s.locker.TryAcquire
	}
	lease, err := acquire(ctx, strconv.Itoa(rand.N(3)))
	time.Sleep(1 + rand.N(20*time.Millisecond))
	if err != nil {
		return
	}
	switch rand.N(6) {
	case 0:
		take(t, s.faults.Driver, lease)
	case 1:
		time.Sleep(time.Second) // a renewal may fail
	}
	for range 1 + rand.N(2) {
		_ = lease.Release(ctx)
	}
}
