package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func TestLock_worksAsInTheGuide(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		a, b := l.NewLock(key, 30*time.Second), l.NewLock(key, 30*time.Second)
		if ok, err := a.Acquire(t.Context()); !ok || err != nil {
			t.Fatalf("Acquire: %t, %v", ok, err)
		}
		for _, lock := range []*distlock.Lock{a, b} {
			if ok, err := lock.Acquire(t.Context()); ok || err != nil {
				t.Errorf("Acquire of a held lock: %t, %v", ok, err)
			}
		}
		if err := b.Release(t.Context()); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("Release by another: %v", err)
		}
		if err := b.Extend(t.Context(), time.Minute); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("Extend by another: %v", err)
		}
		if err := a.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend: %v", err)
		}
		if left := s.state(t).TTL; left != time.Minute {
			t.Errorf("%s left", left)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := a.Release(t.Context()); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("second Release: %v", err)
		}
		if ok, err := b.Acquire(t.Context()); !ok || err != nil {
			t.Errorf("Acquire after Release: %t, %v", ok, err)
		}
	})
}

func TestLock_AcquireWithRetry(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		held := mustAcquire(t, l)
		lock := l.NewLock(key, 0)

		start := time.Now()
		err := lock.AcquireWithRetry(t.Context(), 3, 100*time.Millisecond)
		if !errors.Is(err, distlock.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "failed to acquire lock after 3 attempts") {
			t.Errorf("AcquireWithRetry: %v", err)
		}
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("3 attempts took %s", took)
		}

		time.AfterFunc(150*time.Millisecond, func() { mustRelease(t, held) })
		if err := lock.AcquireWithRetry(t.Context(), 3, 100*time.Millisecond); err != nil {
			t.Errorf("AcquireWithRetry: %v", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := l.NewLock(key, 0).AcquireWithRetry(ctx, 3, 100*time.Millisecond); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("with an ended ctx: %v", err)
		}
	})
}

func TestLock_refusesArgumentsOutOfRange(t *testing.T) {
	l := newService().locker(t, distlock.Options{})
	for name, err := range map[string]error{
		"no attempts":    l.NewLock(key, 0).AcquireWithRetry(t.Context(), 0, time.Second),
		"negative delay": l.NewLock(key, 0).AcquireWithRetry(t.Context(), 3, -1),
		"short TTL":      second(l.NewLock(key, time.Millisecond).Acquire(t.Context())),
	} {
		if !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, want ErrInvalidOption", name, err)
		}
	}
}

func TestLock_ReleaseCanBeTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lock := s.locker(t, distlock.Options{}).NewLock(key, ttl)
		if ok, err := lock.Acquire(t.Context()); !ok || err != nil {
			t.Fatalf("Acquire: %t, %v", ok, err)
		}
		s.Inject(cutOff(errBroken))
		if err := lock.Release(t.Context()); !errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Release: %v", err)
		}
		s.Inject(nil)
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release again: %v", err)
		}
		if err := lock.Release(t.Context()); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("a second Release: %v", err)
		}
	})
}
