package distlock_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func TestRaiseToken_S2_jumpsAboveAStoresMark(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Observer: &recorder{t: t}})
		lease := mustAcquire(t, l)
		first, mark := lease.Fence(), lease.Fence()+time.Hour.Microseconds()
		if err := fencing.RaiseToken(t.Context(), lease, first-1); err != nil || lease.Fence() != first {
			t.Errorf("with a lower mark: %d, %v", lease.Fence(), err)
		}
		if n := s.Calls(drivertest.Acquire); n != 1 {
			t.Errorf("%d requests, want that of the acquisition", n)
		}
		granted := s.state(t)
		if err := fencing.RaiseToken(t.Context(), lease, mark); err != nil || lease.Fence() <= mark {
			t.Errorf("fence %d, %v; want more than %d", lease.Fence(), err, mark)
		}
		if state := s.state(t); state.Fence != lease.Fence() {
			t.Errorf("the service says %d, the lease %d", state.Fence, lease.Fence())
		}
		if again := s.state(t); again.Holder != granted.Holder || !maps.Equal(again.Metadata, granted.Metadata) ||
			again.Metadata == nil {
			t.Errorf("others would see %+v, before %+v", again, granted)
		}
		time.Sleep(2 * ttl)
		raised := lease.Fence()
		mustRelease(t, lease)
		if next := mustAcquire(t, l); next.Fence() <= raised {
			t.Errorf("the next fence is %d, after %d", next.Fence(), raised)
		}
	})
}

// A damaged mark must not take the tokens that are left below 2^53.
func TestRaiseToken_S2_damagedMarkIsInvalid(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		year := time.Now().Add(driver.FloorAhead).UnixMicro()
		first := lease.Fence()
		for _, mark := range []int64{year + time.Hour.Microseconds(), driver.MaxFence - driver.FenceBlock - 1,
			driver.MaxFence, math.MaxInt64} {
			err := fencing.RaiseToken(t.Context(), lease, mark)
			if !errors.Is(err, distlock.ErrInvalidOption) || errors.Is(err, distlock.ErrUnavailable) ||
				!strings.Contains(err.Error(), "check the mark of the store") {
				t.Errorf("with the mark %d: %v, want ErrInvalidOption and what to check", mark, err)
			}
		}
		if err := lease.Err(); err != nil || lease.Fence() != first {
			t.Errorf("the lease has the token %d, %v; want %d", lease.Fence(), err, first)
		}
		mustRelease(t, lease)
		if next := mustAcquire(t, l); next.Fence() <= first || next.Fence() > year {
			t.Errorf("the next fence is %d, after %d; want one less than a year ahead of the clock", next.Fence(), first)
		}
	})
}

// A stale holder is not let back in: the refusal was right.
func TestRaiseToken_S2_isForTheHolderAlone(t *testing.T) {
	for name, next := range map[string]bool{"another holds": true, "it is free": false} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				lease := mustAcquire(t, s.locker(t, unrenewed))
				s.steal(t)
				if next {
					mustAcquire(t, s.twin().locker(t, distlock.Options{}))
				}
				fence := lease.Fence()
				if err := fencing.RaiseToken(t.Context(), lease, fence+1000); !errors.Is(err, distlock.ErrLost) ||
					lease.Fence() != fence {
					t.Errorf("RaiseToken: %v, fence %d after %d", err, lease.Fence(), fence)
				}
				if state := s.state(t); state.Held != next {
					t.Errorf("the service says %+v", state)
				}
			})
		})
	}
}

func TestRaiseToken_refusals(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		if err := fencing.RaiseToken(t.Context(), lease, -1); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("above -1: %v", err)
		}
		s.Inject(always(drivertest.Raise, errSilence))
		if err := fencing.RaiseToken(t.Context(), lease, lease.Fence()); !errors.Is(err, distlock.ErrUnavailable) ||
			lease.Err() != nil {
			t.Errorf("without the service: %v, %v", err, lease.Err())
		}
		hold := make(chan struct{})
		s.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldAfter: hold} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := fencing.RaiseToken(ctx, lease, lease.Fence()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a service that hangs: %v", err)
		}
		s.Inject(nil)
		first := lease.Fence()
		close(hold)
		synctest.Wait()
		if err := fencing.RaiseToken(t.Context(), lease, first); err != nil || lease.Fence() <= first {
			t.Errorf("after an answer that came late: %v, fence %d, before it %d", err, lease.Fence(), first)
		}
		mustRelease(t, lease)
		if err := fencing.RaiseToken(t.Context(), lease, 1<<52); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("after the release: %v", err)
		}
		if err := fencing.RaiseToken(t.Context(), (*distlock.Lease)(nil), 1); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("of no lease: %v", err)
		}
	})
}

func TestRaiseToken_S2_lateAnswerLowersNoToken(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		hold := make(chan struct{})
		s.Inject(nth(drivertest.Raise, 0, drivertest.Fault{HoldAfter: hold}))
		done := make(chan error)
		go func() { done <- fencing.RaiseToken(t.Context(), lease, lease.Fence()) }()
		synctest.Wait()
		if err := fencing.RaiseToken(t.Context(), lease, lease.Fence()+time.Hour.Microseconds()); err != nil {
			t.Fatal(err)
		}
		second := lease.Fence()
		close(hold)
		if err := <-done; err != nil || lease.Fence() != second {
			t.Errorf("%v; fence %d after %d", err, lease.Fence(), second)
		}
		mustRelease(t, lease)
	})
}

func TestRaiseToken_N_lateAnswerIsALoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		time.Sleep(ttl / 2)
		s.Inject(func(drivertest.Call) drivertest.Fault {
			return drivertest.Fault{HoldAfter: in(ttl - ttl/10)}
		})
		if err := fencing.RaiseToken(t.Context(), lease, lease.Fence()); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("RaiseToken: %v, want ErrLost", err)
		}
	})
}
