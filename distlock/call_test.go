package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// endless never answers, but keeps deadlines.
type endless struct {
	driver.Driver
	on atomic.Bool
}

func (e *endless) wait(ctx context.Context) error {
	if e.on.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (e *endless) Acquire(ctx context.Context, req driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := e.wait(ctx); err != nil {
		return reply, err
	}
	return e.Driver.Acquire(ctx, req)
}

func (e *endless) Raise(ctx context.Context, req driver.RaiseRequest) (reply driver.RaiseReply, err error) {
	if err := e.wait(ctx); err != nil {
		return reply, err
	}
	return e.Driver.Raise(ctx, req)
}

func (e *endless) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	if err := e.wait(ctx); err != nil {
		return []driver.ExtendReply{{Err: err}}
	}
	return e.Driver.Extend(ctx, reqs)
}

func (e *endless) Release(ctx context.Context, req driver.ReleaseRequest) (reply driver.ReleaseReply, err error) {
	if err := e.wait(ctx); err != nil {
		return reply, err
	}
	return e.Driver.Release(ctx, req)
}

// Without a limit of its own, a call waits a TTL for a service that never answers: then nothing is left.
func TestLocker_C_noCallTakesLongerThanATTL(t *testing.T) {
	for name, call := range map[string]func(*distlock.Locker, *distlock.Lease) error{
		"Acquire": func(l *distlock.Locker, _ *distlock.Lease) error {
			return second(l.Acquire(context.Background(), "another"))
		},
		"Extend": func(_ *distlock.Locker, lease *distlock.Lease) error {
			return lease.Extend(context.Background(), ttl)
		},
		"RaiseToken": func(_ *distlock.Locker, lease *distlock.Lease) error {
			return fencing.RaiseToken(context.Background(), lease, lease.Fence())
		},
		"Release": func(_ *distlock.Locker, lease *distlock.Lease) error { return lease.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				e := &endless{Driver: s.spy}
				s.Faults = drivertest.NewFaults(e)
				l := s.locker(t, distlock.Options{Wait: -1})
				lease := mustAcquire(t, l)
				e.on.Store(true)
				start := time.Now()
				want := map[string]error{"Acquire": distlock.ErrUnavailable, "Release": distlock.ErrOutcomeUnknown,
					"Extend": distlock.ErrLost, "RaiseToken": distlock.ErrLost}[name]
				if err := call(l, lease); !errors.Is(err, want) || time.Since(start) > ttl {
					t.Errorf("%v after %s", err, time.Since(start))
				}
				e.on.Store(false)
			})
		})
	}
}

// What an acquisition needed to wait goes with it: a Locker lives as long as its process.
func TestAcquire_leavesNothingWithTheLocker(t *testing.T) {
	s := newService()
	mustAcquire(t, s.locker(t, distlock.Options{}))
	l := s.locker(t, distlock.Options{Wait: -1})
	type witness struct{ _ [64]byte }
	gone := make(chan struct{})
	func() {
		w := new(witness)
		runtime.AddCleanup(w, func(gone chan struct{}) { close(gone) }, gone)
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), witness{}, w), 20*time.Millisecond)
		defer cancel()
		if _, err := l.Acquire(ctx, key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatalf("Acquire: %v", err)
		}
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond): // a poll
		}
		if time.Now().After(deadline) {
			t.Fatal("its context is still in use")
		}
	}
}

// panics is a driver of which a call panics or ends its goroutine.
type panics struct {
	*spy
	next atomic.Pointer[func()] // replaces the next call
}

func (p *panics) call() {
	if f := p.next.Swap(nil); f != nil {
		(*f)()
	}
}

func (p *panics) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := p.spy.Acquire(ctx, req)
	p.call()
	return reply, err
}

func (p *panics) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	p.call()
	return p.spy.Raise(ctx, req)
}

func (p *panics) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	p.call()
	return p.spy.Extend(ctx, reqs)
}

func (p *panics) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	p.call()
	return p.spy.Release(ctx, req)
}

func (p *panics) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	p.call()
	return p.spy.Inspect(ctx, name)
}

// calls are the calls that ask the backend about key, and about a lease on it.
var calls = map[string]func(context.Context, *distlock.Locker, *distlock.Lease) error{
	"Acquire": func(ctx context.Context, l *distlock.Locker, _ *distlock.Lease) error {
		return second(l.Acquire(ctx, key))
	},
	"TryAcquire": func(ctx context.Context, l *distlock.Locker, _ *distlock.Lease) error {
		return second(l.TryAcquire(ctx, key))
	},
	"Inspect": func(ctx context.Context, l *distlock.Locker, _ *distlock.Lease) error {
		return second(l.Inspect(ctx, key))
	},
	"Extend": func(ctx context.Context, _ *distlock.Locker, lease *distlock.Lease) error {
		return lease.Extend(ctx, 10*ttl)
	},
	"RaiseToken": func(ctx context.Context, _ *distlock.Locker, lease *distlock.Lease) error {
		return fencing.RaiseToken(ctx, lease, lease.Fence())
	},
	"Release": func(ctx context.Context, _ *distlock.Locker, lease *distlock.Lease) error { return lease.Release(ctx) },
}

// A panic of the driver reaches the caller. Nothing of the call is left behind: the next waiter has
// the lock, although the grant was made before the panic.
func TestLocker_L_driverPanics_keyIsFree(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic(errBroken) },
		"Goexit": runtime.Goexit,
	} {
		for operation, call := range calls {
			t.Run(operation+"/"+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					p := &panics{spy: newService().spy}
					l := open(t, p, distlock.Options{TTL: ttl})
					lease := mustAcquire(t, l)
					q := newQueue(t)
					if operation == "Acquire" || operation == "TryAcquire" {
						mustRelease(t, lease)
					}
					p.next.Store(&end)
					over := make(chan struct{})
					var err error
					var caught any
					go func() {
						defer close(over)
						defer func() { caught = recover() }()
						err = errors.New("the caller's goroutine has ended")
						err = call(context.Background(), l, lease)
					}()
					synctest.Wait()
					q.join(l, "next", 0)
					select {
					case <-over:
					default:
						t.Fatal("the call has not returned")
					}
					_, isError := caught.(error)
					isPanic := name == "panic"
					if isPanic != isError || !isPanic && err == nil ||
						isPanic && !errors.Is(caught.(error), errBroken) {
						t.Errorf("the caller has %v and panic %v", err, caught)
					}
					switch operation {
					case "Inspect", "Extend", "RaiseToken": // the lease's next calls are not blocked
						if err := lease.Extend(context.Background(), ttl); err != nil {
							t.Errorf("Extend after that: %v", err)
						}
						mustRelease(t, lease)
					case "Release":
						ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
						defer cancel()
						start := time.Now()
						_ = lease.Release(ctx)
						if took := time.Since(start); took > 0 {
							t.Errorf("a second Release took %s", took)
						}
					}
					time.Sleep(time.Second)
					mustRelease(t, q.lease("next"))
				})
			})
		}
	}
}

// A backend that hangs keeps no caller for longer than the limit of the call.
func TestLocker_C_backendHangs_callLimited(t *testing.T) {
	lost, unknown := distlock.ErrLost, distlock.ErrOutcomeUnknown
	for name, c := range map[string]struct {
		op   drivertest.Op
		call string
		want error
		left time.Duration // of the lease
		took time.Duration
	}{
		"Inspect":              {drivertest.Inspect, "Inspect", distlock.ErrUnavailable, 0, 5 * time.Second},
		"Extend":               {drivertest.Extend, "Extend", lost, 10 * time.Second, 10 * time.Second},
		"RaiseToken":           {drivertest.Raise, "RaiseToken", lost, 10 * time.Second, 10 * time.Second},
		"Release":              {drivertest.Release, "Release", unknown, 10 * time.Second, 5 * time.Second},
		"Release near the end": {drivertest.Release, "Release", unknown, time.Second, time.Second},
		"Release at the end": {
			drivertest.Release, "Release", unknown, time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				const ttl = 30 * time.Second
				l := s.locker(t, distlock.Options{TTL: ttl, RenewEvery: -1})
				lease := mustAcquire(t, l)
				if c.left > 0 { // trust ends 552 ms before the TTL
					time.Sleep(ttl - 552*time.Millisecond - c.left)
				}
				s.Inject(on(c.op, drivertest.Fault{HoldBefore: in(time.Hour)}))
				start := time.Now()
				err := calls[c.call](context.Background(), l, lease)
				took := time.Since(start)
				if !errors.Is(err, c.want) || errors.Is(err, context.DeadlineExceeded) || took != c.took {
					t.Errorf("%v after %s, want %v after %s", err, took, c.want, c.took)
				}
				s.Inject(nil)
			})
		})
	}
}
