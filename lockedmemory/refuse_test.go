package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/lockedmemory"
)

var refuse = &lockedmemory.Options{Busy: lockedmemory.Refuse}

// refuses checks that a Turn of m is refused at once, with the number of waiters.
func (s *setup) refuses(t *testing.T, m locked, held time.Duration, waiters int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // or it might wait for ever
	defer cancel()
	start, asked := time.Now(), s.faults.Calls(drivertest.Acquire)
	err := m.Turn(ctx, func(context.Context) error { t.Error("ran"); return nil })
	var busy *distlock.BusyError
	if !errors.As(err, &busy) || busy.Self || busy.Holder == "" || busy.Held != held || busy.Waiters != waiters {
		t.Errorf("%v, want a BusyError that says held for %s, %d waiting", err, held, waiters)
	}
	if took, asked := time.Since(start), s.faults.Calls(drivertest.Acquire)-asked; took != 0 || asked != 1 {
		t.Errorf("refused after %s, the service was asked %d times", took, asked)
	}
}

func TestRefuse_L_failsAtOnceWhileTheSessionIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, refuse)
		patient := s.of(t, session, nil) // in the process of a
		for name, by := range map[string]locked{"another process": s.b, "its own process": patient} {
			if err := s.a.Turn(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Errorf("a session that is free: %v", err)
			}
			began, end := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				err := by.Turn(t.Context(), func(context.Context) error { close(began); <-end; return nil })
				if err != nil {
					t.Errorf("the turn of %s: %v", name, err)
				}
			})
			<-began
			time.Sleep(3 * time.Second)
			s.refuses(t, s.a, 3*time.Second, 0)
			for range 3 {
				wg.Go(func() {
					think := func(context.Context) error { time.Sleep(time.Second); return nil }
					if err := patient.Turn(t.Context(), think); err != nil {
						t.Errorf("a turn that waits: %v", err)
					}
				})
				synctest.Wait()
			}
			s.refuses(t, s.a, 3*time.Second, 3)
			close(end)
			wg.Wait()
		}
	})
}

// While a waiter is queued, in any process, the session is busy, also in the moment in which a turn ends.
func TestRefuse_L_overtakesNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, refuse)
		locker, err := distlock.New(s.faults, nil)
		must(t, err)
		defer locker.Close(context.Background())
		elsewhere, err := lockedmemory.New(s.inner, locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		here := s.of(t, session, nil)
		const turns = 6
		var order []int // guarded by the lock under test
		var wg sync.WaitGroup
		for i := range turns {
			wg.Go(func() {
				err := []locked{here, elsewhere}[i%2].Turn(t.Context(), func(context.Context) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					t.Errorf("turn %d: %v", i, err)
				}
				if i == turns-1 { // no waiter is left
					return
				}
				for _, m := range []locked{s.a, s.b} {
					err := m.Turn(t.Context(), func(context.Context) error { order = append(order, -1); return nil })
					if !errors.Is(err, distlock.ErrNotAcquired) {
						t.Errorf("after turn %d, while others wait: %v", i, err)
					}
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(order, want) {
			t.Errorf("turns in the order %v, want %v", order, want)
		}
	})
}

func TestRefuse_isAnOutcomeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, refuse)
		bounded := s.of(t, session, &lockedmemory.Options{Wait: time.Second})
		nothing := func(context.Context) error { return nil }
		_ = s.b.Turn(t.Context(), func(context.Context) error {
			_ = s.a.Turn(t.Context(), nothing)
			_ = bounded.Turn(t.Context(), nothing)
			synctest.Wait() // it has left the queue
			return nil
		})
		_ = s.a.Turn(t.Context(), func(context.Context) error {
			_ = bounded.Turn(t.Context(), nothing)
			return bounded.Save(t.Context(), "q", "a")
		})
		s.observer.saw(t, "lockedmemory.",
			"lockedmemory.turn busy", "lockedmemory.turn timeout", "lockedmemory.turn done",
			"lockedmemory.turn timeout", "lockedmemory.save timeout", // they wait on themselves
			"lockedmemory.turn timeout") // what its function has returned
	})
}
