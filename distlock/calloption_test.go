package distlock_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func TestWithTTL_setsTheTTLOfOneLease(t *testing.T) {
	type call = func(*distlock.Locker, context.Context, func(context.Context) error, distlock.CallOption) error
	under := func(fn func(context.Context) error, lease *distlock.Lease, err error) error {
		if err != nil {
			return err
		}
		return errors.Join(fn(lease.Context()), lease.Release(context.Background()))
	}
	each(t, map[string]call{
		"Acquire": func(l *distlock.Locker, ctx context.Context, fn func(context.Context) error, o distlock.CallOption) error {
			lease, err := l.Acquire(ctx, key, o)
			return under(fn, lease, err)
		},
		"TryAcquire": func(l *distlock.Locker, ctx context.Context, fn func(context.Context) error, o distlock.CallOption) error {
			lease, err := l.TryAcquire(ctx, key, o)
			return under(fn, lease, err)
		},
		"Do": func(l *distlock.Locker, ctx context.Context, fn func(context.Context) error, o distlock.CallOption) error {
			return l.Do(ctx, key, fn, o)
		},
		"TryDo": func(l *distlock.Locker, ctx context.Context, fn func(context.Context) error, o distlock.CallOption) error {
			return l.TryDo(ctx, key, fn, o)
		},
	}, func(t *testing.T, s *service, call call) {
		l := s.locker(t)
		for given, want := range map[time.Duration]time.Duration{
			0: ttl, time.Minute: time.Minute, time.Second + time.Microsecond: time.Second,
			distlock.MinTTL - 1: 0, -1: 0, math.MaxInt64: 0,
		} {
			var left time.Duration
			err := call(l, t.Context(), func(context.Context) error { left = s.state(t).TTL; return nil }, distlock.WithTTL(given))
			if left != want || errors.Is(err, distlock.ErrInvalidOption) != (want == 0) || want > 0 && err != nil {
				t.Errorf("of %s: %s left, want %s; %v", given, left, want, err)
			}
		}
	})
}

// A waiter with its own TTL is granted the lock by the backend, for that TTL.
func TestWithTTL_waiterHasNoLocalHandoff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		next := queues(t, l, distlock.WithTTL(time.Minute))
		time.Sleep(time.Millisecond)
		mustRelease(t, first)
		lease := <-next
		if left := s.state(t).TTL; left <= ttl {
			t.Errorf("the lock lasts for %s", left)
		}
		mustRelease(t, lease)
	})
}

func TestTryDo_doesNotWaitForAHolder(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		held := mustAcquire(t, s.locker(t, withHolder("the first")))
		l := s.locker(t)
		ran := 0
		do := func() error {
			return l.TryDo(t.Context(), key, func(ctx context.Context) error {
				ran++
				return l.TryDo(ctx, key, func(context.Context) error { ran++; return nil }) // joins
			})
		}
		start := time.Now()
		if busy := wantBusy(t, do()); busy.Holder != "the first" || ran > 0 {
			t.Errorf("TryDo of a held lock: %+v, it ran %d functions", busy, ran)
		}
		wantTook(t, start, 0)
		mustRelease(t, held)
		if err := do(); err != nil || ran != 2 || s.state(t).Held {
			t.Errorf("TryDo of a free lock: %v, it ran %d functions", err, ran)
		}
	})
}
