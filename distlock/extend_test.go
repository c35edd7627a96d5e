package distlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestExtend_prolongsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl) // renewals go on, and shorten nothing
		if left := s.state(t).TTL; left < 50*time.Second {
			t.Errorf("%s left", left)
		}
		s.Inject(cutOff(errBroken))
		time.Sleep(45 * time.Second)
		if err := lease.Err(); err != nil {
			t.Errorf("not held though extended: %v", err)
		}
		time.Sleep(15 * time.Second)
		if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Err: %v", err)
		}
	})
}

func TestExtend_N_shorteningLowersTheDeadlineFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		answer := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Release {
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{HoldAfter: answer}
		})
		start := time.Now()
		done := make(chan error)
		go func() { done <- lease.Extend(t.Context(), 500*time.Millisecond) }()
		<-lease.Context().Done()
		if state := s.state(t); time.Since(start) >= 500*time.Millisecond || state.TTL <= 0 {
			t.Errorf("told after %s", time.Since(start))
		}
		close(answer)
		<-done
	})
}

func TestExtend_N_aShorteningInDoubtEndsTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.Inject(always(drivertest.Extend, errBroken))
		if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Extend: %v", err)
		}
		s.Inject(nil)
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Extend afterwards: %v", err)
		}
		time.Sleep(time.Second)
		if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Err: %v", err)
		}
	})
}

func TestExtend_N_aRenewalSentBeforeAShorteningDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		renewed := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && c.N == 0 {
				return drivertest.Fault{HoldAfter: renewed}
			}
			return drivertest.Fault{}
		})
		time.Sleep(ttl/3 + time.Millisecond) // the first renewal has reached the service, its answer has not come
		if err := lease.Extend(t.Context(), 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		close(renewed)
		s.Inject(cutOff(errBroken))
		for lease.Err() == nil {
			if state := s.state(t); !state.Held {
				t.Fatal("trusted beyond the service's TTL")
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestExtend_refusals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		if err := lease.Extend(t.Context(), 99*time.Millisecond); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("a short TTL: %v", err)
		}
		mustRelease(t, lease)
		if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("after Release: %v", err)
		}
	})
}

// Nothing is renewed while a shortening Extend is under way: it could reach the service after the renewal.
func TestExtend_N_theSchedulePausesForAShortening(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: time.Second, MaxHold: 1500 * time.Millisecond})
		lease := mustAcquire(t, l)
		hold := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && c.N == 0 {
				return drivertest.Fault{HoldBefore: hold}
			}
			return drivertest.Fault{}
		})
		time.Sleep(500 * time.Millisecond)
		time.AfterFunc(700*time.Millisecond, func() { close(hold) })
		if err := lease.Extend(t.Context(), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if lease.Err() == nil && !s.state(t).Held {
			t.Error("trusted beyond the service's TTL")
		}
	})
}
