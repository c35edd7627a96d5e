package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func TestWithTTL_setsTheTTLOfOneLease(t *testing.T) {
	calls := map[string]func(l *distlock.Locker, ctx context.Context, o distlock.CallOption, fn func()) error{
		"Acquire": func(l *distlock.Locker, ctx context.Context, o distlock.CallOption, fn func()) error {
			return under(fn)(l.Acquire(ctx, key, o))
		},
		"TryAcquire": func(l *distlock.Locker, ctx context.Context, o distlock.CallOption, fn func()) error {
			return under(fn)(l.TryAcquire(ctx, key, o))
		},
		"Do": func(l *distlock.Locker, ctx context.Context, o distlock.CallOption, fn func()) error {
			return l.Do(ctx, key, func(context.Context) error { fn(); return nil }, o)
		},
		"TryDo": func(l *distlock.Locker, ctx context.Context, o distlock.CallOption, fn func()) error {
			return l.TryDo(ctx, key, func(context.Context) error { fn(); return nil }, o)
		},
	}
	for name, call := range calls {
		for given, want := range map[time.Duration]time.Duration{
			0: ttl, time.Minute: time.Minute, time.Second + time.Microsecond: time.Second,
			distlock.MinTTL - 1: 0, -1: 0, math.MaxInt64: 0,
		} {
			t.Run(fmt.Sprintf("%s/%s", name, given), func(t *testing.T) {
				inService(t, func(t *testing.T, s *service) {
					var left time.Duration
					err := call(s.locker(t, distlock.Options{}), t.Context(), distlock.WithTTL(given),
						func() { left = s.state(t).TTL })
					if left != want || errors.Is(err, distlock.ErrInvalidOption) != (want == 0) || want > 0 && err != nil {
						t.Errorf("%s left, want %s; %v", left, want, err)
					}
				})
			})
		}
	}
}

// under returns a function that calls fn under a lease and releases it.
func under(fn func()) func(*distlock.Lease, error) error {
	return func(lease *distlock.Lease, err error) error {
		if err != nil {
			return err
		}
		fn()
		return lease.Release(context.Background())
	}
}

// A waiter with its own TTL is granted the lock by the backend, for that TTL.
func TestWithTTL_waiterHasNoLocalHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		granted := make(chan *distlock.Lease)
		go func() {
			lease, err := l.Acquire(t.Context(), key, distlock.WithTTL(time.Minute))
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		time.Sleep(time.Millisecond)
		mustRelease(t, first)
		lease := <-granted
		if left := s.state(t).TTL; left <= ttl {
			t.Errorf("the lock lasts for %s", left)
		}
		mustRelease(t, lease)
	})
}

func TestTryDo_doesNotWaitForAHolder(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		held := mustAcquire(t, s.locker(t, distlock.Options{Holder: "the first"}))
		l := s.locker(t, distlock.Options{})
		ran := 0
		do := func() error {
			return l.TryDo(t.Context(), key, func(ctx context.Context) error {
				ran++
				return l.TryDo(ctx, key, func(context.Context) error { ran++; return nil }) // joins
			})
		}
		var busy *distlock.BusyError
		start := time.Now()
		if err := do(); !errors.As(err, &busy) || busy.Holder != "the first" || ran > 0 || time.Since(start) > 0 {
			t.Errorf("TryDo of a held lock: %v after %s, it ran %d functions", err, time.Since(start), ran)
		}
		mustRelease(t, held)
		if err := do(); err != nil || ran != 2 || s.state(t).Held {
			t.Errorf("TryDo of a free lock: %v, it ran %d functions", err, ran)
		}
	})
}
