package distlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// wrapped is a wrapper that shows the driver beneath.
type wrapped struct{ driver.Driver }

func (w wrapped) Unwrap() driver.Driver { return w.Driver }

// polled is a wrapper that hides the notifications of a backend with a queue.
type polled struct{ driver.Driver }

// notifying notifies every listener when a lock is released, and keeps no order.
type notifying struct {
	driver.Driver
	mu    sync.Mutex
	wakes map[string]chan driver.Wake
}

func (n *notifying) Capabilities() driver.Capabilities {
	c := n.Driver.Capabilities()
	c.Queues = false
	return c
}

func (n *notifying) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	req.Alive, req.Seq, req.Ticket = 0, 0, 0
	return n.Driver.Acquire(ctx, req)
}

func (n *notifying) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	req.Leave = false
	reply, err := n.Driver.Release(ctx, req)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, wakes := range n.wakes {
		select {
		case wakes <- driver.Wake{}:
		default:
		}
	}
	return reply, err
}

func (n *notifying) Listen(_ context.Context, _ driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wakes := make(chan driver.Wake, 1)
	n.wakes[owner] = wakes
	return wakes, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.wakes, owner)
	}, nil
}

// A waiter learns of a release in the way that the backend offers.
func TestAcquire_L_waitsAsTheBackendNotifies(t *testing.T) {
	for name, c := range map[string]struct {
		over     func(driver.Driver) driver.Driver
		within   time.Duration // of the release
		requests int           // in two seconds of waiting, at most
	}{
		"a queue and notifications":  {func(d driver.Driver) driver.Driver { return d }, 0, 3},
		"the same beneath a wrapper": {func(d driver.Driver) driver.Driver { return wrapped{d} }, 0, 3},
		"a queue without notifications": {func(d driver.Driver) driver.Driver { return polled{d} }, 400 * time.Millisecond,
			30},
		"notifications without a queue": {func(d driver.Driver) driver.Driver {
			return &notifying{Driver: d, wakes: make(map[string]chan driver.Wake)}
		}, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				d := c.over(s.Faults)
				opts := distlock.Options{TTL: 30 * time.Second, Wait: -1}
				theirs := mustAcquire(t, open(t, d, opts))
				here := open(t, d, opts)
				q := newQueue(t)
				q.join(here, "a", 0)
				time.Sleep(2 * time.Second)
				if n := s.Calls(drivertest.Acquire) - 1; n < 2 || n > c.requests {
					t.Errorf("%d requests in two seconds, want 2 to %d", n, c.requests)
				}
				start := time.Now()
				mustRelease(t, theirs)
				q.wg.Wait()
				lease := q.lease("a")
				if took := time.Since(start); took > c.within {
					t.Errorf("the waiter has the lock after %s, want %s at most", took, c.within)
				}
				mustRelease(t, lease)
			})
		})
	}
}

// A Listen that hangs leaves time for the request after it. Both together keep the time for an answer.
func TestAcquire_C_listenHangs_answerInTime(t *testing.T) {
	for name, c := range map[string]struct {
		ttl  time.Duration
		hang []drivertest.Op
	}{
		"with the backend":                {10 * time.Second, []drivertest.Op{drivertest.Listen, drivertest.Acquire}},
		"with the backend, and short TTL": {500 * time.Millisecond, []drivertest.Op{drivertest.Listen, drivertest.Acquire}},
		"alone":                           {500 * time.Millisecond, []drivertest.Op{drivertest.Listen}},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				other := mustAcquire(t, s.twin().locker(t, distlock.Options{TTL: c.ttl}))
				l := s.locker(t, distlock.Options{TTL: c.ttl, Wait: -1})
				never := in(time.Hour)
				s.Inject(func(call drivertest.Call) drivertest.Fault {
					if slices.Contains(c.hang, call.Op) {
						return drivertest.Fault{HoldBefore: never}
					}
					return drivertest.Fault{}
				})
				time.AfterFunc(3*time.Second/2, func() { mustRelease(t, other) })
				answered := len(c.hang) == 1
				start := time.Now()
				var waiters sync.WaitGroup
				for range 4 {
					waiters.Go(func() {
						lease, err := l.Acquire(t.Context(), key)
						took := time.Since(start)
						switch {
						case answered && err == nil:
							mustRelease(t, lease)
						case answered, !errors.Is(err, distlock.ErrUnavailable), took > 2*min(5*time.Second, c.ttl):
							t.Errorf("Acquire: %v, %v after %s", lease, err, took)
						}
					})
					synctest.Wait()
				}
				waiters.Wait()
				s.Inject(nil)
			})
		})
	}
}
