package distlock_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

func TestClose_endsWaitingCallsAndReleasesLeases(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, patient), s.locker(t)
		lease := mustAcquire(t, l)
		for i := range 50 {
			must(t, second(l.Acquire(t.Context(), strconv.Itoa(i))))
		}
		must(t, second(other.Acquire(t.Context(), "busy")))
		waiting := async(func() error { return second(l.Acquire(t.Context(), "busy")) })
		time.Sleep(time.Second)

		start := time.Now()
		mustClose(t, l)
		wantTook(t, start, 0)
		wantErr(t, <-waiting, distlock.ErrClosed)
		wantCause(t, lease.Context(), distlock.ErrNotHeld)
		wantErr(t, lease.Err(), distlock.ErrNotHeld)
		wantErr(t, lease.Err(), distlock.ErrClosed)
		mustRelease(t, mustAcquire(t, other))
		for i := range 50 {
			wantErr(t, second(other.TryAcquire(t.Context(), strconv.Itoa(i))), nil)
		}
		mustClose(t, l)
	})
}

// countClose counts how often the driver is closed.
func (s *service) countClose() *int {
	n := new(int)
	s.OnClose = func() error { *n++; return nil }
	return n
}

// The Lockers of a driver use it as their own, and leave it open.
func TestClose_sharedDriver_staysOpen(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		closed := s.countClose()
		first, second := open(t, driver.Shared{Driver: s.Script}), open(t, driver.Shared{Driver: s.Script})
		mustAcquire(t, first)
		mustClose(t, first)
		mustRelease(t, mustAcquire(t, second))
		mustClose(t, second)
		if *closed != 0 || fencing.Driver(second) != driver.Driver(s.Script) {
			t.Errorf("closed %d times; the Locker uses a %T", *closed, fencing.Driver(second))
		}
	})
}

func TestClose_duringDoIsReported(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		wantErr(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			go mustClose(t, l)
			<-ctx.Done()
			return nil
		}), distlock.ErrClosed)
	})
}

func TestClose_endsLeasesItCannotRelease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		lease := mustAcquire(t, l)
		s.Inject(cutOff(errBroken))
		mustClose(t, l)
		before := s.Calls(drivertest.Release)
		wantErr(t, lease.Release(t.Context()), distlock.ErrClosed)
		s.wantCalls(t, drivertest.Release, before) // none over a driver that is closed
	})
}

// A call without an answer ends at Close with the error of all waiters.
func TestClose_endsACallWhoseAnswerIsLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		lost := make(chan struct{})
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldAfter: lost, After: errBroken}))
		acquired := async(func() error { return second(l.Acquire(t.Context(), key)) })
		synctest.Wait()
		closed := async(func() error { return l.Close(t.Context()) })
		synctest.Wait()
		close(lost)
		wantErr(t, <-acquired, distlock.ErrClosed, distlock.ErrUnavailable)
		wantErr(t, <-closed, nil)
		s.wantFree(t)
	})
}

func TestClose_waitsForAReleaseUnderWay(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		closed, l := s.countClose(), s.locker(t)
		lease := mustAcquire(t, l)
		under := true
		s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
			time.Sleep(time.Second)
			under = *closed > 0
			return s.Driver().Release(ctx, req)
		}
		released := async(func() error { return lease.Release(t.Context()) })
		synctest.Wait()
		mustClose(t, l)
		wantErr(t, <-released, nil)
		s.wantFree(t)
		mustClose(t, l)
		if under || *closed != 1 {
			t.Errorf("closed %d times, under the call: %t", *closed, under)
		}
	})
}

// Nor does a connection that does not end keep the caller.
func TestClose_driverHangs_returnsByItsContext(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		ends, closed := make(chan struct{}), 0
		s.OnClose = func() error { closed++; <-ends; return errBroken }
		l, err := distlock.New(mute{s.Faults}, options())
		must(t, err)
		mustAcquire(t, l)
		start := time.Now()
		wantErr(t, l.Close(ctxFor(t, 200*time.Millisecond)), context.DeadlineExceeded)
		wantTook(t, start, 200*time.Millisecond)
		s.wantFree(t)
		close(ends)
		wantErr(t, l.Close(t.Context()), errBroken)
		if closed != 1 {
			t.Errorf("the driver was closed %d times", closed)
		}
	})
}
