package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A backend that reports the loss of a grant need not be asked: the lease ends before its next renewal.
func TestLease_N_reportedLossEndsIt(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{RenewEvery: -1})
		lost := mustAcquire(t, l)
		kept, err := l.Acquire(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		name := driver.Name{Namespace: s.granted().Name.Namespace, Key: key}
		if broken, err := s.Break(t.Context(), name, lost.Fence()); err != nil || !broken {
			t.Fatalf("Break: %t, %v", broken, err)
		}
		synctest.Wait()
		if !errors.Is(lost.Err(), distlock.ErrLost) || context.Cause(lost.Context()) != distlock.ErrLost {
			t.Errorf("the lost lease: %v, with the cause %v", lost.Err(), context.Cause(lost.Context()))
		}
		if kept.Err() != nil || s.Calls(drivertest.Extend) != 0 {
			t.Errorf("the other lease: %v, after %d extends", kept.Err(), s.Calls(drivertest.Extend))
		}
		mustRelease(t, kept)
		mustRelease(t, mustAcquire(t, l))
	})
}
