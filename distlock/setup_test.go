package distlock_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key = "conversation-1"
	ttl = 3 * time.Second
)

// unrenewed are the options of a lease that ends with its TTL.
var unrenewed = distlock.Options{RenewEvery: -1}

// service is an in-process lock service whose answers can be spoiled.
type service struct {
	*drivertest.Faults
	*spy
}

// spy remembers the last acquire that was granted.
type spy struct {
	driver.Driver
	mu   sync.Mutex
	last driver.AcquireRequest
}

func (s *spy) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.Driver.Acquire(ctx, req)
	if err == nil && reply.Outcome == driver.Granted {
		s.mu.Lock()
		s.last = req
		s.mu.Unlock()
	}
	return reply, err
}

func (s *spy) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	return s.Driver.(driver.Listener).Listen(ctx, name, owner)
}

func (s *spy) Unwrap() driver.Driver { return s.Driver }

func newService() *service {
	s := &spy{Driver: memlock.NewDriver()}
	return &service{Faults: drivertest.NewFaults(s), spy: s}
}

// twin is a second client of the backend, with faults of its own.
func (s *service) twin() *service {
	return &service{Faults: drivertest.NewFaults(s.spy), spy: s.spy}
}

// granted is the last acquire that was granted, whether its answer arrived or not.
func (s *service) granted() driver.AcquireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// steal ends the last grant behind the back of its holder.
func (s *service) steal(t *testing.T) {
	t.Helper()
	req := s.granted()
	if reply, err := s.spy.Driver.Release(context.Background(), driver.ReleaseRequest{Name: req.Name,
		Owner: req.Owner}); err != nil || !reply.Released {
		t.Fatalf("steal: %+v, %v", reply, err)
	}
}

func (s *service) state(t *testing.T) driver.State {
	t.Helper()
	state, err := s.spy.Driver.Inspect(context.Background(), driver.Name{Namespace: "distlock", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// wantFree fails the test if the lock is held.
func (s *service) wantFree(t *testing.T) {
	t.Helper()
	if state := s.state(t); state.Held {
		t.Errorf("the lock is held: %+v", state)
	}
}

// locker makes a Locker over the backend with the given options, silent and with the test's TTL by
// default. The end of the test closes it.
func (s *service) locker(t *testing.T, opts distlock.Options) *distlock.Locker {
	t.Helper()
	if opts.TTL == 0 {
		opts.TTL = ttl
	}
	return open(t, s.Faults, opts)
}

// open makes a Locker over a driver, silent unless opts say otherwise, that is closed at the end of the test.
func open(t *testing.T, d driver.Driver, opts distlock.Options) *distlock.Locker {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := distlock.New(d, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustClose(t, l) })
	return l
}

func mustClose(t *testing.T, l *distlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func mustAcquire(t *testing.T, l *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lease
}

func mustRelease(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// inService runs the test in a bubble with a service of its own.
func inService(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	inBubble(t, func(t *testing.T) { test(t, newService()) })
}

// inBubble runs the test on fake time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// on is a fault of all calls of op.
func on(op drivertest.Op, fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return func(c drivertest.Call) drivertest.Fault {
		if c.Op == op {
			return fault
		}
		return drivertest.Fault{}
	}
}

// nth is a fault of one call of op. The first one has the number 0.
func nth(op drivertest.Op, n int, fault drivertest.Fault) func(drivertest.Call) drivertest.Fault {
	return func(c drivertest.Call) drivertest.Fault {
		if c.Op == op && c.N == n {
			return fault
		}
		return drivertest.Fault{}
	}
}

// in is closed after d.
func in(d time.Duration) <-chan struct{} {
	passed := make(chan struct{})
	time.AfterFunc(d, func() { close(passed) })
	return passed
}

// always makes the calls of op fail before they reach the service.
func always(op drivertest.Op, err error) func(drivertest.Call) drivertest.Fault {
	return on(op, drivertest.Fault{Before: err})
}

// after makes the calls of op lose their answers.
func after(op drivertest.Op, err error) func(drivertest.Call) drivertest.Fault {
	return on(op, drivertest.Fault{After: err})
}

func cutOff(err error) func(drivertest.Call) drivertest.Fault {
	return func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: err} }
}
