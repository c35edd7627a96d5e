package distlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestLease_renewalKeepsIt(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		other := s.locker(t, distlock.Options{})
		for range 100 {
			time.Sleep(ttl / 3)
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
			if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Fatalf("TryAcquire: %v", err)
			}
		}
		mustRelease(t, lease)
		time.Sleep(time.Second)
		before := s.Calls(drivertest.Extend)
		time.Sleep(10 * ttl)
		if n := s.Calls(drivertest.Extend) - before; n != 0 {
			t.Errorf("%d renewals after the release", n)
		}
	})
}

func TestLease_noRenewalIfItIsOff(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		<-lease.Context().Done()
		if n := s.Calls(drivertest.Extend); n != 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestLease_MaxHoldEndsRenewal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{MaxHold: 10 * ttl}))
		start := time.Now()
		<-lease.Context().Done()
		if held := time.Since(start); held < 10*ttl-ttl || held > 11*ttl {
			t.Errorf("held for %s with a MaxHold of %s", held, 10*ttl)
		}
		if !errors.Is(lease.Err(), distlock.ErrLost) {
			t.Errorf("Err: %v", lease.Err())
		}
	})
}

func TestLease_N_contextIsCancelledBeforeAnotherHolds(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		other := s.twin().locker(t, distlock.Options{Wait: -1})
		time.Sleep(5 * ttl / 2)
		s.Inject(cutOff(errBroken))
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			next, err := other.Acquire(t.Context(), key)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			if lease.Context().Err() == nil {
				t.Error("another client holds the lock, and the first lease has not ended")
			}
			mustRelease(t, next)
		}()
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); cause != distlock.ErrLost {
			t.Errorf("cause %v", cause)
		}
		if left := s.state(t).TTL; left <= 0 {
			t.Errorf("ended %s after the lock had expired", -left)
		}
		<-acquired
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}

// The deadline counts from the sending of a request, however long its answer takes.
func TestLease_N_deadlineCountsFromTheSending(t *testing.T) {
	for name, extends := range map[string]bool{"of an acquire": false, "of an extend": true} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					if c.Op == drivertest.Release {
						return drivertest.Fault{Before: errBroken}
					}
					return drivertest.Fault{HoldAfter: in(ttl / 3)}
				})
				lease := mustAcquire(t, s.locker(t, unrenewed))
				if extends {
					if err := lease.Extend(t.Context(), ttl); err != nil {
						t.Fatal(err)
					}
				}
				<-lease.Context().Done()
				if state := s.state(t); state.TTL <= 0 {
					t.Errorf("ended when the service kept the lock no more: %+v", state)
				}
			})
		})
	}
}

func TestLease_N_renewalCountsFromTheSending(t *testing.T) {
	for name, takes := range map[string]time.Duration{"answered in time": ttl / 10, "answered late": ttl / 2} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				var sent time.Time
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					switch {
					case c.Op == drivertest.Extend && c.N == 0:
						sent = time.Now()
						return drivertest.Fault{HoldAfter: in(takes)}
					case c.Op == drivertest.Acquire:
						return drivertest.Fault{}
					}
					return drivertest.Fault{Before: errBroken}
				})
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				<-lease.Context().Done()
				if trusted := time.Since(sent); trusted < ttl-ttl/10 || trusted >= ttl {
					t.Errorf("trusted for %s after the renewal was sent, with a TTL of %s", trusted, ttl)
				}
			})
		})
	}
}

func TestLease_aFailedRenewalIsTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		var failures atomic.Int32
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && failures.Add(1)%3 != 0 {
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{}
		})
		time.Sleep(10 * ttl)
		if err := lease.Err(); err != nil {
			t.Errorf("lost after blips: %v", err)
		}
		if failures.Load() < 6 {
			t.Errorf("%d renewals, this tests nothing", failures.Load())
		}
		mustRelease(t, lease)
	})
}

func TestLease_aHangingRenewalIsTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		never := make(chan struct{})
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldBefore: never}))
		time.Sleep(2 * ttl / 3)
		if n := s.Calls(drivertest.Extend); n != 2 {
			t.Errorf("%d renewals were sent, want the one that hangs and another, after half a period", n)
		}
		time.Sleep(10 * ttl)
		if err := lease.Err(); err != nil {
			t.Errorf("lost because one renewal hung: %v", err)
		}
		mustRelease(t, lease)
		close(never)
	})
}

// The answer counts also when the renewal had been given up, and was tried again without success.
func TestLease_N_notMineIsFinalHoweverLate(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: seen}))
		s.steal(t)
		first, second := make(chan struct{}), make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Extend && c.N == 0:
				return drivertest.Fault{HoldAfter: first}
			case c.Op == drivertest.Extend && c.N == 1:
				return drivertest.Fault{HoldAfter: second}
			}
			return drivertest.Fault{Before: errBroken}
		})
		time.Sleep(5 * ttl / 6)
		if err := lease.Err(); err != nil {
			t.Fatalf("before an answer has come: %v", err)
		}
		close(first)
		synctest.Wait()
		if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Err: %v, want ErrLost", err)
		}
		close(second)
		time.Sleep(ttl)
		losses := 0
		for _, outcome := range seen.outcomes() {
			if outcome == "distlock.lost lost" {
				losses++
			}
		}
		if losses != 1 {
			t.Errorf("the loss was reported %d times", losses)
		}
	})
}

func TestLease_contextKeepsValuesNotCancellation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		type name struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "value"), time.Minute)
		lease, err := newService().locker(t, distlock.Options{}).Acquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if lease.Context().Err() != nil || lease.Context().Value(name{}) != "value" {
			t.Errorf("Err %v, value %v", lease.Context().Err(), lease.Context().Value(name{}))
		}
		if _, ok := lease.Context().Deadline(); ok {
			t.Error("the lease's context has the caller's deadline")
		}
		mustRelease(t, lease)
		if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
			t.Errorf("cause after Release: %v", cause)
		}
	})
}
