package distlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A waiter learns of a release in the way that the backend offers.
func TestAcquire_L_waitsAsTheBackendNotifies(t *testing.T) {
	type row struct {
		over     func(*service) driver.Driver
		within   time.Duration // of the release
		requests int           // in two seconds of waiting, at most
	}
	each(t, map[string]row{
		"a queue and notifications":     {func(s *service) driver.Driver { return s.Faults }, 0, 3},
		"the same beneath a wrapper":    {func(s *service) driver.Driver { return wrapped{s.Faults} }, 0, 3},
		"a queue without notifications": {func(s *service) driver.Driver { return polled{s.Faults} }, 400 * time.Millisecond, 30},
		"notifications without a queue": {(*service).notifies, 0, 3},
	}, func(t *testing.T, s *service, c row) {
		d := c.over(s)
		theirs, q := mustAcquire(t, open(t, d, withTTL(30*time.Second))), newQueue(t)
		q.join(open(t, d, withTTL(30*time.Second), patient), "a", 0)
		time.Sleep(2 * time.Second)
		if n := s.Calls(drivertest.Acquire) - 1; n < 2 || n > c.requests {
			t.Errorf("%d requests in two seconds, want 2 to %d", n, c.requests)
		}
		start := time.Now()
		mustRelease(t, theirs)
		q.wg.Wait()
		if took := time.Since(start); took > c.within {
			t.Errorf("the waiter has the lock after %s, want %s at most", took, c.within)
		}
		mustRelease(t, q.lease("a"))
	})
}

// wrapped is a wrapper that shows the driver beneath.
type wrapped struct{ driver.Driver }

func (w wrapped) Unwrap() driver.Driver { return w.Driver }

// polled is a driver without notifications.
type polled struct{ driver.Driver }

// notifies makes the service one that keeps no order, and notifies of a release.
func (s *service) notifies() driver.Driver {
	wakes := make(chan driver.Wake, 1)
	s.Caps = &driver.Capabilities{Backend: "memory"}
	s.OnAcquire = func(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
		req.Alive, req.Seq, req.Ticket = 0, 0, 0
		return s.Driver().Acquire(ctx, req)
	}
	s.OnRelease = func(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
		reply, err := s.Driver().Release(ctx, req)
		wakes <- driver.Wake{}
		return reply, err
	}
	s.OnListen = func(context.Context) (<-chan driver.Wake, func(), error) { return wakes, func() {}, nil }
	return s.Faults
}

// A Listen that hangs leaves time for the request after it. Both together keep the time for an answer.
func TestAcquire_C_listenHangs_answerInTime(t *testing.T) {
	type row struct {
		ttl   time.Duration
		alone bool
	}
	each(t, map[string]row{
		"with the backend":                {10 * time.Second, false},
		"with the backend, and short TTL": {500 * time.Millisecond, false},
		"alone":                           {500 * time.Millisecond, true},
	}, func(t *testing.T, s *service, c row) {
		other := mustAcquire(t, s.twin().locker(t, withTTL(c.ttl)))
		l := s.locker(t, withTTL(c.ttl), patient)
		never := in(time.Hour)
		s.Inject(func(call drivertest.Call) drivertest.Fault {
			if call.Op == drivertest.Listen || call.Op == drivertest.Acquire && !c.alone {
				return drivertest.Fault{HoldBefore: never}
			}
			return drivertest.Fault{}
		})
		time.AfterFunc(3*time.Second/2, func() { mustRelease(t, other) })
		start := time.Now()
		var waiters sync.WaitGroup
		for range 4 {
			waiters.Go(func() {
				lease, err := l.Acquire(t.Context(), key)
				took := time.Since(start)
				switch {
				case c.alone && err == nil:
					mustRelease(t, lease)
				case c.alone, !errors.Is(err, distlock.ErrUnavailable), took > 2*min(5*time.Second, c.ttl):
					t.Errorf("Acquire: %v, %v after %s", lease, err, took)
				}
			})
			synctest.Wait()
		}
		waiters.Wait()
		s.Inject(nil)
	})
}
