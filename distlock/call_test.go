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
)

// punctual is a service whose calls keep deadlines: the first Acquire after stall hangs until its context ends.
type punctual struct {
	*spy
	stall atomic.Bool
	takes time.Duration // of the others
	calls atomic.Int32
	tried driver.AcquireRequest // the one that hung
}

func (*punctual) Ready() bool { return true }

func (p *punctual) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	p.calls.Add(1)
	if p.stall.CompareAndSwap(true, false) {
		p.tried = req
		<-ctx.Done()
		return driver.AcquireReply{}, ctx.Err()
	}
	time.Sleep(p.takes)
	return p.spy.Acquire(ctx, req)
}

func newPunctual(t *testing.T) (*punctual, *distlock.Locker) {
	t.Helper()
	p := &punctual{spy: newService().spy}
	l := open(t, p, distlock.Options{})
	mustRelease(t, mustAcquire(t, l)) // the service is known to be quick
	return p, l
}

// wantNoGhost fails the test if a copy of req that arrives now, after others, is granted the lock.
func (p *punctual) wantNoGhost(t *testing.T, l *distlock.Locker, req driver.AcquireRequest) {
	t.Helper()
	for range 3 {
		mustRelease(t, mustAcquire(t, l))
	}
	if reply, err := p.spy.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Void {
		t.Errorf("a late copy of the acquire was answered %+v, %v", reply, err)
	}
}

func TestAcquire_aStalledDirectCallIsMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, l := newPunctual(t)
		p.stall.Store(true)
		start := time.Now()
		lease := mustAcquire(t, l)
		if took := time.Since(start); took != 15*time.Millisecond {
			t.Errorf("took %s", took)
		}
		mustRelease(t, lease)
		p.wantNoGhost(t, l, p.tried)
	})
}

func TestAcquire_aStalledDirectCallEndsWithItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, l := newPunctual(t)
		p.stall.Store(true)
		before := p.calls.Load()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 11*time.Millisecond {
			t.Errorf("Acquire: %v after %s", err, time.Since(start))
		}
		synctest.Wait()
		if n := p.calls.Load() - before; n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// A service that is slow is asked once for each call: what was begun directly would only be made again.
func TestAcquire_noneIsDirectWhileTheServiceIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, l := newPunctual(t)
		lease := mustAcquire(t, l)
		ask := func(ctx context.Context, takes time.Duration, want error, requests int32) {
			t.Helper()
			before := p.calls.Load()
			p.takes = takes
			if _, err := l.TryAcquire(ctx, key); !errors.Is(err, want) {
				t.Errorf("TryAcquire: %v, want %v", err, want)
			}
			if n := p.calls.Load() - before; n != requests {
				t.Errorf("%d requests, want %d", n, requests)
			}
		}
		const slow = 20 * time.Millisecond
		ask(t.Context(), slow, distlock.ErrNotAcquired, 2)
		for range 3 {
			ask(t.Context(), slow, distlock.ErrNotAcquired, 1)
		}
		ask(t.Context(), 0, distlock.ErrNotAcquired, 1) // quick again
		ctx, cancel := context.WithTimeout(t.Context(), slow/2)
		defer cancel()
		ask(ctx, slow, context.DeadlineExceeded, 1)
		ask(t.Context(), slow, distlock.ErrNotAcquired, 1)
		mustRelease(t, lease)
	})
}

// unready is punctual at times, and then sits in its calls.
type unready struct {
	*spy
	sits chan struct{}
}

func (u unready) Ready() bool { return u.sits == nil }
func (u unready) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if u.sits != nil {
		<-u.sits
	}
	return u.spy.Acquire(ctx, req)
}

func TestAcquire_aDriverThatIsNotReadyKeepsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		u := &unready{spy: newService().spy}
		l := open(t, u, distlock.Options{})
		mustRelease(t, mustAcquire(t, l))
		u.sits = make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(u.sits) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 50*time.Millisecond {
			t.Errorf("Acquire: %v after %s", err, time.Since(start))
		}
	})
}

func TestRelease_directlyWithACancelledContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, l := newPunctual(t)
		lease := mustAcquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

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

func (e *endless) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	_ = e.wait(ctx)
	return e.Driver.Extend(ctx, reqs)
}

func (e *endless) Release(ctx context.Context, req driver.ReleaseRequest) (reply driver.ReleaseReply, err error) {
	if err := e.wait(ctx); err != nil {
		return reply, err
	}
	return e.Driver.Release(ctx, req)
}

// Who sets no limit waits for a service that never answers for a TTL: then nothing is left that could be had.
func TestLocker_C_noCallTakesLongerThanATTL(t *testing.T) {
	for name, call := range map[string]func(*distlock.Locker, *distlock.Lease) error{
		"Acquire": func(l *distlock.Locker, _ *distlock.Lease) error {
			return second(l.Acquire(context.Background(), "another"))
		},
		"Extend": func(_ *distlock.Locker, lease *distlock.Lease) error { return lease.Extend(context.Background(), ttl) },
		"Refence": func(_ *distlock.Locker, lease *distlock.Lease) error {
			return lease.Refence(context.Background(), lease.Fence())
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
				want := distlock.ErrOutcomeUnknown
				if name == "Acquire" || name == "Refence" {
					want = distlock.ErrUnavailable
				}
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
