package distlock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

func TestLease_S2_fencesRise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		a, b := s.locker(t, distlock.Options{}), s.locker(t, distlock.Options{})
		last := int64(0)
		for range 100 {
			for _, l := range []*distlock.Locker{a, b, a} {
				lease := mustAcquire(t, l)
				if lease.Fence() <= last {
					t.Fatalf("fence %d after %d", lease.Fence(), last)
				}
				last = lease.Fence()
				mustRelease(t, lease)
			}
		}
	})
}

func TestLease_renewalKeepsIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
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
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		<-lease.Context().Done()
		if n := s.Calls(drivertest.Extend); n != 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestLease_MaxHoldEndsRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
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
	inBubble(t, func(t *testing.T) {
		s := newService()
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
				t.Error("somebody else holds the lock, and the first holder does not know")
			}
			mustRelease(t, next)
		}()
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); cause != distlock.ErrLost {
			t.Errorf("cause %v", cause)
		}
		if left := s.state(t).TTL; left <= 0 {
			t.Errorf("told %s after the lock had expired", -left)
		}
		<-acquired
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	})
}

// The deadline counts from the sending of a request, however long its answer takes.
func TestLease_N_deadlineCountsFromTheSending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Release {
				return drivertest.Fault{Before: errBroken}
			}
			answer := make(chan struct{})
			time.AfterFunc(ttl/3, func() { close(answer) })
			return drivertest.Fault{HoldAfter: answer}
		})
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		if err := lease.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		if state := s.state(t); state.TTL <= 0 {
			t.Errorf("told when the service kept the lock no more: %+v", state)
		}
	})
}

func TestLease_N_renewalCountsFromTheSending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		var sent time.Time
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Extend && c.N == 0:
				sent = time.Now()
				answer := make(chan struct{})
				time.AfterFunc(ttl/2, func() { close(answer) })
				return drivertest.Fault{HoldAfter: answer}
			case c.Op == drivertest.Acquire:
				return drivertest.Fault{}
			}
			return drivertest.Fault{Before: errBroken}
		})
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		<-lease.Context().Done()
		if trusted := time.Since(sent); trusted <= ttl/2 || trusted >= ttl {
			t.Errorf("trusted for %s after the renewal was sent, with a TTL of %s", trusted, ttl)
		}
	})
}

func TestLease_aFailedRenewalIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
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
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		never := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend && c.N == 0 {
				return drivertest.Fault{HoldBefore: never}
			}
			return drivertest.Fault{}
		})
		time.Sleep(10 * ttl)
		if err := lease.Err(); err != nil {
			t.Errorf("lost because one renewal hung: %v", err)
		}
		mustRelease(t, lease)
		close(never)
	})
}

func TestLease_notMineIsFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.steal(t)
		start := time.Now()
		<-lease.Context().Done()
		if told := time.Since(start); told > ttl/3 {
			t.Errorf("told after %s, the next renewal was due after %s", told, ttl/3)
		}
		if !errors.Is(lease.Err(), distlock.ErrLost) || context.Cause(lease.Context()) != distlock.ErrLost {
			t.Errorf("Err %v, cause %v", lease.Err(), context.Cause(lease.Context()))
		}
		if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
	})
}

func TestLease_lossDoesNotTouchTheNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{RenewEvery: -1}))
		s.steal(t)
		next := mustAcquire(t, s.locker(t, distlock.Options{}))
		<-lease.Context().Done()
		_ = lease.Release(t.Context())
		synctest.Wait()
		if err := next.Extend(t.Context(), ttl); err != nil {
			t.Errorf("the next holder's lease: %v", err)
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

// A shortening Extend whose answer was lost may take effect at any later moment, so nothing may prolong the lease.
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

func TestRelease_worksWithACancelledContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

func TestRelease_returnsSoonWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		answer := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		err := lease.Release(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Release: %v", err)
		}
		if late := time.Since(start) - time.Second; late > 50*time.Millisecond {
			t.Errorf("returned %s after the cancellation", late)
		}
		close(answer)
		synctest.Wait()
		if s.state(t).Held {
			t.Error("the release did not go on in the background")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release again: %v", err)
		}
	})
}

func TestRelease_isIdempotent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		errs := make(chan error)
		for range 8 {
			go func() { errs <- lease.Release(t.Context()) }()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		next := mustAcquire(t, l)
		mustRelease(t, lease)
		if next.Err() != nil || !s.state(t).Held {
			t.Error("a repeated release ended the next lease")
		}
		if n := s.Calls(drivertest.Release); n != 1 {
			t.Errorf("%d requests", n)
		}
		mustRelease(t, next)
	})
	var none *distlock.Lease
	if err := none.Release(t.Context()); err != nil {
		t.Errorf("Release of nil: %v", err)
	}
}

func TestRelease_canBeTriedAgain(t *testing.T) {
	for name, fault := range map[string]func(drivertest.Call) drivertest.Fault{
		"request lost": always(drivertest.Release, errBroken), "answer lost": after(drivertest.Release, errBroken),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newService()
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				s.Inject(fault)
				if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("Release: %v", err)
				}
				if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
					t.Errorf("cause %v", cause)
				}
				s.Inject(nil)
				mustRelease(t, lease)
				if s.state(t).Held {
					t.Error("the lock stands")
				}
			})
		})
	}
}

func TestRelease_saysIfTheLockWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.steal(t)
		next := mustAcquire(t, s.locker(t, distlock.Options{}))
		mustRelease(t, next)
		for range 2 {
			if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
				t.Errorf("Release: %v, want ErrLost", err)
			}
		}
	})
}

func TestRenewals_goOutInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		const n = 300
		for i := range n {
			if _, err := l.Acquire(t.Context(), key+strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / n) // spread over a whole period and more
		}
		time.Sleep(10 * ttl) // let them flock together
		before := s.Calls(drivertest.Extend)
		time.Sleep(100 * ttl / 3)
		if calls := s.Calls(drivertest.Extend) - before; calls > 100*9 {
			t.Errorf("%d exchanges for 100 renewals of %d leases", calls, n)
		}
	})
}

// blocked is a log that nobody reads.
type blocked struct {
	slog.Handler
	until chan struct{}
}

func (blocked) Enabled(context.Context, slog.Level) bool { return true }
func (b blocked) Handle(context.Context, slog.Record) error {
	<-b.until
	return nil
}

func TestLease_N_aBlockedLogDoesNotKeepTheHolderFromBeingTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		log := blocked{until: make(chan struct{})}
		lease := mustAcquire(t, s.locker(t, distlock.Options{Logger: slog.New(log)}))
		s.Inject(cutOff(errBroken))
		start := time.Now()
		<-lease.Context().Done()
		if told := time.Since(start); told >= ttl {
			t.Errorf("told after %s", told)
		}
		if err := lease.Err(); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Err: %v", err)
		}
		close(log.until)
	})
}

func TestRelease_duringARenewalIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		seen := &recorder{t: t}
		lease := mustAcquire(t, s.locker(t, distlock.Options{Observer: seen}))
		answer := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Extend {
				return drivertest.Fault{HoldBefore: answer}
			}
			return drivertest.Fault{}
		})
		time.Sleep(ttl/3 + time.Millisecond)
		mustRelease(t, lease)
		close(answer)
		synctest.Wait()
		if got := seen.outcomes(); slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "lost") }) {
			t.Errorf("operations %q", got)
		}
	})
}

func TestRelease_byTwoAtOnceIsOne(t *testing.T) {
	for name, fault := range map[string]error{"it works": nil, "it fails": errBroken} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newService()
				lease := mustAcquire(t, s.locker(t, distlock.Options{}))
				answer := make(chan struct{})
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					return drivertest.Fault{HoldBefore: answer, Before: fault}
				})
				first, second := make(chan error), make(chan error)
				go func() { first <- lease.Release(t.Context()) }()
				synctest.Wait()
				go func() { second <- lease.Release(t.Context()) }()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := lease.Release(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("a third, cancelled: %v", err)
				}
				close(answer)
				for _, err := range []error{<-first, <-second} {
					if errors.Is(err, distlock.ErrUnavailable) != (fault != nil) {
						t.Errorf("Release: %v", err)
					}
				}
				if n := s.Calls(drivertest.Release); n != 1 {
					t.Errorf("%d requests", n)
				}
				s.Inject(nil)
			})
		})
	}
}
