package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestExtend_prolongsOnce(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
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

// An Extend to more than is left sets no end: a renewal may have reached the service before it.
func TestExtend_N_oneThatArrivesLateShortensNothing(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{TTL: 30 * time.Second}))
		hold := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Extend && c.N == 0:
				return drivertest.Fault{HoldBefore: hold}
			case c.Op == drivertest.Extend && c.N == 1: // a renewal
				return drivertest.Fault{}
			}
			return drivertest.Fault{Before: errBroken}
		})
		time.Sleep(9 * time.Second)
		time.AfterFunc(3*time.Second, func() { close(hold) })
		if err := lease.Extend(t.Context(), 22*time.Second); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		if !s.state(t).Held {
			t.Error("trusted beyond the service's TTL")
		}
	})
}

func TestExtend_refusals(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		if err := lease.Extend(t.Context(), 99*time.Millisecond); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("a short TTL: %v", err)
		}
		mustRelease(t, lease)
		for range 2 {
			if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrNotHeld) {
				t.Errorf("after Release: %v", err)
			}
		}
		if err := (*distlock.Lease)(nil).Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("of no lease: %v", err)
		}
	})
}

// An Extend may be the first to learn that the lock is gone.
func TestExtend_N_ofALockThatIsGoneIsALoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		s.steal(t)
		if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		if cause := context.Cause(lease.Context()); cause != distlock.ErrLost {
			t.Errorf("the context's cause is %v", cause)
		}
	})
}
