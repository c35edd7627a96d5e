package distlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

func TestExtend_shortensInTheServiceToo(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		if err := lease.Extend(t.Context(), 500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if left := s.state(t).TTL; left > 500*time.Millisecond {
			t.Errorf("%s left", left)
		}
	})
}

// The schedule keeps the Locker's TTL: it comes back before the shortened lease has ended.
func TestExtend_aShortenedLeaseIsRenewedInTime(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		for range 2 {
			if err := lease.Extend(t.Context(), ttl/6); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ttl)
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
		}
		mustRelease(t, lease)
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

// Two on their way at once would leave unknown which of them the service carries out last.
func TestExtend_N_isSentWhenTheLastOneHasBeenAnswered(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1, TTL: time.Minute}))
		answer := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldAfter: answer}))
		first := make(chan error, 1)
		go func() { first <- lease.Extend(t.Context(), time.Hour) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := lease.Extend(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != time.Second {
			t.Errorf("the second Extend: %v after %s", err, time.Since(start))
		}
		if n := s.Calls(drivertest.Extend); n != 1 {
			t.Errorf("%d requests are under way", n)
		}
		close(answer)
		if err := <-first; err != nil {
			t.Errorf("the first Extend: %v", err)
		}
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend afterwards: %v", err)
		}
	})
}

// Answer and departure can meet. The next Extend can begin in either case.
func TestExtend_answeredAsItsCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lease := mustAcquire(t, newService().locker(t, distlock.Options{RenewEvery: -1, TTL: time.Hour}))
		left, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2000 {
			if err := lease.Extend(left, time.Hour); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Extend: %v", err)
			}
			synctest.Wait()
			if err := lease.Extend(t.Context(), time.Hour); err != nil {
				t.Fatalf("the next Extend: %v", err)
			}
		}
	})
}

func TestExtend_N_shorteningLowersTheDeadlineFirst(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
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
			t.Errorf("lost after %s", time.Since(start))
		}
		close(answer)
		<-done
	})
}

// A shortening Extend with a lost answer may take effect at any later moment, so nothing may prolong the
// lease.
func TestExtend_N_aShorteningInDoubtEndsTheLease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.Inject(always(drivertest.Extend, errBroken))
		if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, distlock.ErrOutcomeUnknown) {
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
		if n := s.Calls(drivertest.Extend); n != 1 {
			t.Errorf("%d requests, want the one without an answer", n)
		}
	})
}

func TestExtend_N_renewalBeforeAShorteningIsIgnored(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		renewed := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldAfter: renewed}))
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
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		s.steal(t)
		if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		if cause := context.Cause(lease.Context()); cause != distlock.ErrLost {
			t.Errorf("the context's cause is %v", cause)
		}
	})
}

// Nothing is renewed while a shortening Extend is under way: it could reach the service after the renewal.
func TestExtend_N_theSchedulePausesForAShortening(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		// One renewal would fall into the time for which the Extend is on its way; none follows it.
		l := s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: time.Second, MaxHold: 1100 * time.Millisecond})
		lease := mustAcquire(t, l)
		hold := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldBefore: hold}))
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

// Nor does the answer to a renewal that was sent before bring the schedule back.
func TestExtend_N_olderAnswerLeavesRenewalPaused(t *testing.T) {
	for name, lost := range map[string]error{"it is held": nil, "the answer is an error": errBroken} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: time.Second}))
				renewed, hold := make(chan struct{}), make(chan struct{})
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					switch {
					case c.Op == drivertest.Extend && c.N == 0:
						return drivertest.Fault{HoldAfter: renewed, After: lost}
					case c.Op == drivertest.Extend && c.N == 1:
						return drivertest.Fault{HoldBefore: hold}
					}
					return drivertest.Fault{}
				})
				time.Sleep(1100 * time.Millisecond)
				extended := make(chan error)
				go func() { extended <- lease.Extend(t.Context(), 10*time.Second) }()
				synctest.Wait()
				close(renewed)
				time.Sleep(5 * time.Second)
				if n := s.Calls(drivertest.Extend); n != 2 {
					t.Errorf("%d requests: a renewal was sent while the Extend was on its way", n)
				}
				close(hold)
				if err := <-extended; err != nil {
					t.Error(err)
				}
				mustRelease(t, lease)
			})
		})
	}
}
