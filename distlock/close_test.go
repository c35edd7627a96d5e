package distlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestClose_endsWaitingCallsAndReleasesLeases(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, distlock.Options{Wait: -1}), s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		for i := range 50 {
			if _, err := l.Acquire(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.Acquire(t.Context(), "busy"); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() { waiting <- second(l.Acquire(t.Context(), "busy")) }()
		time.Sleep(time.Second)

		start := time.Now()
		mustClose(t, l)
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %s", took)
		}
		if err := <-waiting; !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("the waiting Acquire: %v, want ErrClosed", err)
		}
		if cause := context.Cause(lease.Context()); cause != distlock.ErrNotHeld {
			t.Errorf("cause %v", cause)
		}
		if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) || !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Err: %v", err)
		}
		mustRelease(t, mustAcquire(t, other))
		for i := range 50 {
			if _, err := other.TryAcquire(t.Context(), strconv.Itoa(i)); err != nil {
				t.Errorf("lock %d stands after Close: %v", i, err)
			}
		}
		mustClose(t, l)
	})
}

func TestClose_refusesNewCalls(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		mustClose(t, l)
		for call, err := range map[string]error{
			"Acquire":    second(l.Acquire(t.Context(), key)),
			"TryAcquire": second(l.TryAcquire(t.Context(), key)),
			"Inspect":    second(l.Inspect(t.Context(), key)),
			"Do":         l.Do(t.Context(), key, ranT(t)),
		} {
			if !errors.Is(err, distlock.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", call, err)
			}
		}
	})
}

// closable counts how often it is closed.
type closable struct {
	driver.Driver
	closed int
}

func (c *closable) Close() error { c.closed++; return c.Driver.Close() }

// The Lockers of a driver use it as their own, and leave it open.
func TestClose_sharedDriver_staysOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := &closable{Driver: memlock.NewDriver()}
		first, err := distlock.New(driver.Shared{Driver: d}, nil)
		if err != nil {
			t.Fatal(err)
		}
		second, err := distlock.New(driver.Shared{Driver: d}, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, first)
		mustClose(t, first)
		mustRelease(t, mustAcquire(t, second))
		mustClose(t, second)
		if d.closed != 0 || fencing.Driver(second) != driver.Driver(d) {
			t.Errorf("closed %d times; the Locker uses a %T", d.closed, fencing.Driver(second))
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestClose_duringDoIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newService().locker(t, distlock.Options{})
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			go mustClose(t, l)
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Do: %v, want ErrClosed", err)
		}
	})
}

func TestClose_endsLeasesItCannotRelease(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		s.Inject(cutOff(errBroken))
		mustClose(t, l)
		s.Inject(nil)
		before := s.Calls(drivertest.Release)
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("Release: %v, want ErrClosed", err)
		}
		if n := s.Calls(drivertest.Release) - before; n != 0 {
			t.Errorf("%d requests over a driver that is closed", n)
		}
	})
}

// A call without an answer ends at Close with the error of all waiters.
func TestClose_endsACallWhoseAnswerIsLost(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, err := distlock.New(s.Faults, nil)
		if err != nil {
			t.Fatal(err)
		}
		lost := make(chan struct{})
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldAfter: lost, After: errBroken}))
		acquired := make(chan error)
		go func() { acquired <- second(l.Acquire(t.Context(), key)) }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		close(lost)
		if err := <-acquired; !errors.Is(err, distlock.ErrClosed) || errors.Is(err, distlock.ErrUnavailable) {
			t.Errorf("Acquire: %v, want ErrClosed", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
	})
}

// closing notes calls that are under way when the driver is closed.
type closing struct {
	*drivertest.Faults
	under  atomic.Int32
	missed atomic.Int32
	closed atomic.Int32
}

func (c *closing) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	c.under.Add(1)
	defer c.under.Add(-1)
	return c.Faults.Release(ctx, req)
}

func (c *closing) Close() error {
	c.missed.Store(c.under.Load())
	c.closed.Add(1)
	return nil
}

func TestClose_waitsForAReleaseUnderWay(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		d := &closing{Faults: s.Faults}
		l, err := distlock.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		lease := mustAcquire(t, l)
		answer := make(chan struct{})
		s.Inject(func(c drivertest.Call) drivertest.Fault { return drivertest.Fault{HoldBefore: answer} })
		released := make(chan error)
		go func() { released <- lease.Release(t.Context()) }()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(answer) })
		mustClose(t, l)
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
		if n := d.missed.Load(); n != 0 || s.state(t).Held {
			t.Errorf("closed under %d calls; %+v", n, s.state(t))
		}
		mustClose(t, l)
		if n := d.closed.Load(); n != 1 {
			t.Errorf("the driver was closed %d times", n)
		}
	})
}

// hung is a service whose connections end when they want to.
type hung struct {
	driver.Driver
	ends   chan struct{}
	closed atomic.Int32
}

func (h *hung) Close() error {
	h.closed.Add(1)
	<-h.ends
	return errBroken
}

// Nor does a connection that does not end keep the caller.
func TestClose_driverHangs_returnsByItsContext(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		d := &hung{Driver: mute{s.Faults}, ends: make(chan struct{})}
		l, err := distlock.New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, l)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 200*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if s.state(t).Held {
			t.Error("the lock stands")
		}
		close(d.ends)
		if err := l.Close(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("Close: %v", err)
		}
		if n := d.closed.Load(); n != 1 {
			t.Errorf("the driver was closed %d times", n)
		}
	})
}
