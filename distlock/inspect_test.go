package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
)

func TestPing_readsAndReportsTheBackend(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		if err := l.Ping(t.Context()); err != nil || s.state(t).Held {
			t.Errorf("Ping: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Ping(gone); !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Ping for a caller that has left: %v", err)
		}
		s.Inject(cutOff(errBroken))
		if err := l.Ping(t.Context()); !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Ping of a broken backend: %v", err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Ping(t.Context()); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Ping after Close: %v", err)
		}
	})
}

// The context of a lease that is not renewed ends at its Deadline.
func TestLease_N_endsAtItsDeadline(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		start := time.Now()
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		deadline := lease.Deadline()
		if left := deadline.Sub(start); left >= ttl || left < ttl*9/10 {
			t.Errorf("%s left of %s", left, ttl)
		}
		if err := lease.Extend(t.Context(), 2*ttl); err != nil || lease.Deadline().Sub(start) < ttl*19/10 {
			t.Errorf("%s left after Extend, %v", lease.Deadline().Sub(start), err)
		}
		deadline = lease.Deadline()
		<-lease.Context().Done()
		if !time.Now().Equal(deadline) || !errors.Is(lease.Err(), distlock.ErrLost) {
			t.Errorf("ended %s after the deadline: %v", time.Since(deadline), lease.Err())
		}
	})
}

// A renewal moves the Deadline.
func TestLease_renewalMovesTheDeadline(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		first := lease.Deadline()
		time.Sleep(ttl)
		if next := lease.Deadline(); !next.After(first) || !next.After(time.Now()) {
			t.Errorf("the deadline is %s, and was %s a TTL ago", next, first)
		}
		mustRelease(t, lease)
	})
}
