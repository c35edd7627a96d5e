package distlock_test

import (
	"context"
	"errors"
	"fmt"
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
		l := s.locker(t, seenBy(&recorder{t: t}))
		lease := mustAcquire(t, l)
		first, mark := lease.Fence(), lease.Fence()+time.Hour.Microseconds()
		if err := fencing.RaiseToken(t.Context(), lease, first-1); err != nil || lease.Fence() != first {
			t.Errorf("with a lower mark: %d, %v", lease.Fence(), err)
		}
		s.wantCalls(t, drivertest.Raise, 0)
		granted := s.state(t)
		if err := fencing.RaiseToken(t.Context(), lease, mark); err != nil || lease.Fence() <= mark {
			t.Errorf("fence %d, %v; want more than %d", lease.Fence(), err, mark)
		}
		if again := s.state(t); again.Fence != lease.Fence() || again.Holder != granted.Holder ||
			!maps.Equal(again.Metadata, granted.Metadata) || again.Metadata == nil {
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
		l := s.locker(t)
		lease := mustAcquire(t, l)
		year := time.Now().Add(driver.FloorAhead).UnixMicro()
		first := lease.Fence()
		for _, mark := range []int64{year + time.Hour.Microseconds(), driver.MaxFence - driver.FenceBlock - 1,
			driver.MaxFence, math.MaxInt64} {
			err := fencing.RaiseToken(t.Context(), lease, mark)
			wantErr(t, err, distlock.ErrInvalidOption, distlock.ErrUnavailable)
			if !strings.Contains(fmt.Sprint(err), "check the mark of the store") {
				t.Errorf("with the mark %d: %v does not say what to check", mark, err)
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
	each(t, map[string]bool{"another holds": true, "it is free": false}, func(t *testing.T, s *service, next bool) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		s.steal(t)
		if next {
			mustAcquire(t, s.twin().locker(t))
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
}

func TestRaiseToken_refusals(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		raise := func(ctx context.Context) error { return fencing.RaiseToken(ctx, lease, lease.Fence()) }
		wantErr(t, fencing.RaiseToken(t.Context(), lease, -1), distlock.ErrInvalidOption)
		s.Inject(always(drivertest.Raise, errSilence))
		wantErr(t, raise(t.Context()), distlock.ErrUnavailable)
		wantErr(t, lease.Err(), nil)
		hold := make(chan struct{})
		s.Inject(slow(hold))
		wantErr(t, raise(ctxFor(t, time.Second)), context.DeadlineExceeded)
		s.Inject(nil)
		first := lease.Fence()
		close(hold)
		synctest.Wait()
		if err := fencing.RaiseToken(t.Context(), lease, first); err != nil || lease.Fence() <= first {
			t.Errorf("after an answer that came late: %v, fence %d, before it %d", err, lease.Fence(), first)
		}
		mustRelease(t, lease)
		wantErr(t, raise(t.Context()), distlock.ErrNotHeld)
		wantErr(t, fencing.RaiseToken(t.Context(), (*distlock.Lease)(nil), 1), distlock.ErrNotHeld)
	})
}

func TestRaiseToken_S2_lateAnswerLowersNoToken(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		hold := make(chan struct{})
		s.Inject(nth(drivertest.Raise, 0, drivertest.Fault{HoldAfter: hold}))
		done := async(func() error { return fencing.RaiseToken(t.Context(), lease, lease.Fence()) })
		synctest.Wait()
		must(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()+time.Hour.Microseconds()))
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
		s.Inject(slow(in(ttl - ttl/10)))
		wantErr(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()), distlock.ErrLost)
	})
}

func TestExtend_prolongsOnce(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t))
		must(t, lease.Extend(t.Context(), time.Minute))
		time.Sleep(2 * ttl) // renewals go on, and shorten nothing
		if left := s.state(t).TTL; left < 50*time.Second {
			t.Errorf("%s left", left)
		}
		s.Inject(cutOff(errBroken))
		time.Sleep(45 * time.Second)
		wantErr(t, lease.Err(), nil)
		time.Sleep(15 * time.Second)
		wantErr(t, lease.Err(), distlock.ErrLost)
	})
}

func TestExtend_refusals(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease, none := mustAcquire(t, s.locker(t)), (*distlock.Lease)(nil)
		wantErr(t, lease.Extend(t.Context(), 99*time.Millisecond), distlock.ErrInvalidOption)
		mustRelease(t, lease)
		mustRelease(t, none)
		wantErr(t, lease.Extend(t.Context(), ttl), distlock.ErrNotHeld)
		wantErr(t, none.Extend(t.Context(), ttl), distlock.ErrNotHeld)
	})
}

// An Extend may be the first to learn that the lock is gone.
func TestExtend_N_ofALockThatIsGoneIsALoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		lease := mustAcquire(t, s.locker(t, unrenewed))
		s.steal(t)
		wantErr(t, lease.Extend(t.Context(), ttl), distlock.ErrLost)
		wantCause(t, lease.Context(), distlock.ErrLost)
	})
}
