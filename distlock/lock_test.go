package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// takes fails the test unless the lock is acquired, or is busy.
func takes(t *testing.T, lock *distlock.Lock, want bool) {
	t.Helper()
	if ok, err := lock.Acquire(t.Context()); ok != want || err != nil {
		t.Fatalf("Acquire: %t, %v, want %t", ok, err, want)
	}
}

func TestLock_worksAsInTheGuide(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		a, b := l.NewLock(key, 30*time.Second), l.NewLock(key, 30*time.Second)
		takes(t, a, true)
		takes(t, a, false)
		takes(t, b, false)
		wantErr(t, b.Release(t.Context()), distlock.ErrNotHeld)
		wantErr(t, b.Extend(t.Context(), time.Minute), distlock.ErrNotHeld)
		wantErr(t, a.Extend(t.Context(), time.Minute), nil)
		if left := s.state(t).TTL; left != time.Minute {
			t.Errorf("%s left", left)
		}
		s.Inject(cutOff(errBroken))
		wantErr(t, a.Release(t.Context()), distlock.ErrOutcomeUnknown)
		s.Inject(nil)
		wantErr(t, a.Release(t.Context()), nil)
		wantErr(t, a.Release(t.Context()), distlock.ErrNotHeld)
		takes(t, b, true)
		for name, err := range map[string]error{
			"no attempts":    l.NewLock(key, 0).AcquireWithRetry(t.Context(), 0, time.Second),
			"negative delay": l.NewLock(key, 0).AcquireWithRetry(t.Context(), 3, -1),
			"short TTL":      second(l.NewLock(key, time.Millisecond).Acquire(t.Context())),
		} {
			if !errors.Is(err, distlock.ErrInvalidOption) {
				t.Errorf("%s: %v, want ErrInvalidOption", name, err)
			}
		}
	})
}

func TestLock_AcquireWithRetry(t *testing.T) {
	const delay = 100 * time.Millisecond
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		held, lock := mustAcquire(t, l), l.NewLock(key, 0)
		start := time.Now()
		err := lock.AcquireWithRetry(t.Context(), 3, delay)
		wantErr(t, err, distlock.ErrNotAcquired)
		if !strings.Contains(fmt.Sprint(err), "failed to acquire lock after 3 attempts") {
			t.Errorf("AcquireWithRetry: %v", err)
		}
		wantTook(t, start, 2*delay)
		time.AfterFunc(delay*3/2, func() { mustRelease(t, held) })
		wantErr(t, lock.AcquireWithRetry(t.Context(), 3, delay), nil)
		wantErr(t, l.NewLock(key, 0).AcquireWithRetry(ctxFor(t, delay/2), 3, delay), context.DeadlineExceeded)

		wantErr(t, lock.Release(t.Context()), nil)
		s.Inject(from(drivertest.Acquire, s.Calls(drivertest.Acquire), 4, drivertest.Fault{Before: errTurnedAway}))
		wantErr(t, lock.AcquireWithRetry(t.Context(), 2, time.Second), distlock.ErrUnavailable, distlock.ErrNotAcquired)
		wantErr(t, lock.AcquireWithRetry(t.Context(), 3, time.Second), nil) // after two failures
		wantErr(t, lock.Release(t.Context()), nil)
	})
}
