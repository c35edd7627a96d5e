package distlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestLease_MaxHoldEndsRenewal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, withMaxHold(10*ttl)))
		start := time.Now()
		<-lease.Context().Done()
		if held := time.Since(start); held < 10*ttl-ttl || held > 11*ttl {
			t.Errorf("held for %s with a MaxHold of %s", held, 10*ttl)
		}
		wantErr(t, lease.Err(), distlock.ErrLost)
	})
}

func TestLease_N_contextIsCancelledBeforeAnotherHolds(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease, other := mustAcquire(t, s.locker(t)), s.twin().locker(t, patient)
		time.Sleep(5 * ttl / 2)
		s.Inject(cutOff(errBroken))
		acquired := async(func() error {
			next, err := other.Acquire(t.Context(), key)
			if lease.Context().Err() == nil {
				t.Error("another client holds the lock, and the first lease has not ended")
			}
			return errors.Join(err, next.Release(t.Context()))
		})
		<-lease.Context().Done()
		wantCause(t, lease.Context(), distlock.ErrLost)
		if left := s.state(t).TTL; left <= 0 {
			t.Errorf("ended %s after the lock had expired", -left)
		}
		wantErr(t, <-acquired, nil)
		wantErr(t, lease.Release(t.Context()), distlock.ErrLost)
	})
}

// The deadline counts from the sending of a request, however long its answer takes.
func TestLease_N_deadlineCountsFromTheSending(t *testing.T) {
	each(t, map[string]bool{"of an acquire": false, "of an extend": true}, func(t *testing.T, s *service, extends bool) {
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Release {
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{HoldAfter: in(ttl / 3)}
		})
		lease := mustAcquire(t, s.locker(t, unrenewed))
		if extends {
			must(t, lease.Extend(t.Context(), ttl))
		}
		<-lease.Context().Done()
		if state := s.state(t); state.TTL <= 0 {
			t.Errorf("ended when the service kept the lock no more: %+v", state)
		}
	})
}

func TestLease_N_renewalCountsFromTheSending(t *testing.T) {
	each(t, map[string]time.Duration{
		"answered in time": ttl / 10, "answered late": ttl / 2,
	}, func(t *testing.T, s *service, takes time.Duration) {
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
		lease := mustAcquire(t, s.locker(t))
		<-lease.Context().Done()
		if trusted := time.Since(sent); trusted < ttl-ttl/10 || trusted >= ttl {
			t.Errorf("trusted for %s after the renewal was sent, with a TTL of %s", trusted, ttl)
		}
	})
}

func TestLease_aFailedRenewalIsTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		var failures atomic.Int32
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && failures.Add(1)%3 != 0 {
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{}
		})
		time.Sleep(10 * ttl)
		wantErr(t, lease.Err(), nil)
		if failures.Load() < 6 {
			t.Errorf("%d renewals, this tests nothing", failures.Load())
		}
		mustRelease(t, lease)
	})
}

func TestLease_aHangingRenewalIsTriedAgain(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		s.Inject(nth(drivertest.Extend, 0, drivertest.Fault{HoldBefore: in(time.Hour)}))
		time.Sleep(2 * ttl / 3)
		s.wantCalls(t, drivertest.Extend, 2) // the one that hangs and another, after half a period
		time.Sleep(10 * ttl)
		wantErr(t, lease.Err(), nil)
		mustRelease(t, lease)
	})
}

// The answer counts also when the renewal had been given up, and was tried again without success.
func TestLease_N_notMineIsFinalHoweverLate(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, seenBy(seen)))
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
		wantErr(t, lease.Err(), nil)
		close(first)
		synctest.Wait()
		wantErr(t, lease.Err(), distlock.ErrLost)
		close(second)
		time.Sleep(ttl)
		lost := slices.DeleteFunc(seen.outcomes(), func(s string) bool { return s != "distlock.lost lost" })
		wantList(t, lost, "distlock.lost lost")
	})
}

func TestLease_contextKeepsValuesNotCancellation(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		type name struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "value"), time.Minute)
		lease, err := s.locker(t).Acquire(ctx, key)
		must(t, err)
		cancel()
		if _, deadline := lease.Context().Deadline(); deadline || lease.Context().Value(name{}) != "value" {
			t.Errorf("deadline: %t, value %v", deadline, lease.Context().Value(name{}))
		}
		wantErr(t, lease.Context().Err(), nil)
		mustRelease(t, lease)
		wantCause(t, lease.Context(), distlock.ErrNotHeld)
	})
}

// acquireTogether makes n leases that are due in the same moment.
func acquireTogether(t *testing.T, l *distlock.Locker, n int) []*distlock.Lease {
	t.Helper()
	leases := make([]*distlock.Lease, n)
	for i := range leases {
		var err error
		if leases[i], err = l.Acquire(t.Context(), key+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	return leases
}

func wantHeld(t *testing.T, leases []*distlock.Lease) {
	t.Helper()
	for i, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Fatalf("lease %d of %d: %v", i, len(leases), err)
		}
	}
}

func TestRenewals_thatAreStuckDoNotHoldUpOthers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		start := time.Now()
		leases := acquireTogether(t, s.locker(t), 2_100)
		var last time.Time
		s.Inject(func(c drivertest.Call) (fault drivertest.Fault) {
			if c.Op == drivertest.Extend && c.N < 2 {
				fault.HoldBefore = in(time.Hour)
			} else if c.Op == drivertest.Extend && c.N == 2 {
				last = time.Now()
			}
			return fault
		})
		time.Sleep(ttl/3 + 200*time.Millisecond)
		synctest.Wait()
		s.wantCalls(t, drivertest.Extend, 3) // of which 2 are stuck
		if late := last.Sub(start) - ttl/3; late > 100*time.Millisecond {
			t.Errorf("the last was late by %s", late)
		}
		time.Sleep(2 * ttl)
		wantHeld(t, leases)
	})
}

func TestRenew_batchesKeepTheDriversLimit(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		leases, most := acquireTogether(t, s.locker(t), 1_100), 0
		s.OnExtend = func(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
			s.Change(func() { most = max(most, len(reqs)) })
			return s.Driver().Extend(ctx, reqs)
		}
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: in(10 * time.Millisecond)} })
		time.Sleep(4*ttl/3 + ttl/6)
		synctest.Wait()
		if s.wantCalls(t, drivertest.Extend, 4*2); most != driver.MaxBatch {
			t.Errorf("the largest batch has %d, want %d", most, driver.MaxBatch)
		}
		s.Inject(nil)
		wantHeld(t, leases)
	})
}

// A renewal that fails while its lease is released was neither done, nor is it tried again.
func TestRenewals_failedAfterRelease_notReported(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, seenBy(seen))
		lease := mustAcquire(t, l)
		s.Inject(on(drivertest.Extend, drivertest.Fault{HoldBefore: in(ttl/3 + 100*time.Millisecond), Before: errSilence}))
		time.Sleep(ttl/3 + 50*time.Millisecond)
		mustRelease(t, lease)
		mustClose(t, l)
		seen.want("distlock.acquire acquired", "distlock.release done")
	})
}

// A lease with its own, short TTL is renewed in time beside a long one, also in one batch with it.
func TestRenewals_shortLeasesAreRenewedBesideLongOnes(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, withTTL(30*time.Second))
		start := time.Now()
		must(t, second(l.Acquire(t.Context(), "long")))
		hold := func() {
			t.Helper()
			short := mustAcquire(t, l, distlock.WithTTL(time.Second))
			time.Sleep(3 * time.Second)
			mustRelease(t, short)
		}
		hold()
		// Due just after the other one: a batch that hangs is given up in time for the lease that
		// needs it first.
		time.Sleep(time.Until(start.Add(10*time.Second + 20*time.Millisecond - time.Second/3)))
		s.Inject(nth(drivertest.Extend, s.Calls(drivertest.Extend), drivertest.Fault{HoldBefore: in(time.Hour)}))
		hold()
	})
}
