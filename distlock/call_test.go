package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

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

// What an acquisition needed to wait goes with it: a Locker lives as long as its process.
func TestAcquire_leavesNothingWithTheLocker(t *testing.T) {
	s := newService()
	mustAcquire(t, s.locker(t))
	l := s.locker(t, patient)
	type witness struct{ _ [64]byte }
	gone := make(chan struct{})
	func() {
		w := new(witness)
		runtime.AddCleanup(w, func(gone chan struct{}) { close(gone) }, gone)
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), witness{}, w), 20*time.Millisecond)
		defer cancel()
		wantErr(t, second(l.Acquire(ctx, key)), context.DeadlineExceeded)
	}()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond): // a poll
		}
	}
	t.Error("its context is still in use")
}

func TestPing_readsAndReportsTheBackend(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t)
		wantErr(t, l.Ping(t.Context()), nil)
		s.wantFree(t)
		wantErr(t, l.Ping(leftCtx(t)), context.Canceled, distlock.ErrUnavailable)
		s.Inject(cutOff(errBroken))
		wantErr(t, l.Ping(t.Context()), distlock.ErrUnavailable)
		mustClose(t, l)
		wantErr(t, l.Ping(t.Context()), distlock.ErrClosed)
		for _, call := range []string{"Acquire", "TryAcquire", "Inspect"} {
			wantErr(t, calls[call](t.Context(), l, nil), distlock.ErrClosed)
		}
		wantErr(t, l.Do(t.Context(), key, ranT(t)), distlock.ErrClosed)
	})
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
				inService(t, func(t *testing.T, s *service) {
					l := s.locker(t)
					lease := mustAcquire(t, l)
					q := newQueue(t)
					if operation == "Acquire" || operation == "TryAcquire" {
						mustRelease(t, lease)
					}
					s.endsNext(end)
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
					if name == "panic" && caught != error(errBroken) || name == "Goexit" && (caught != nil || err == nil) {
						t.Errorf("the caller has %v and panic %v", err, caught)
					}
					switch operation {
					case "Inspect", "Extend", "RaiseToken": // the lease's next calls are not blocked
						wantErr(t, lease.Extend(context.Background(), ttl), nil)
						mustRelease(t, lease)
					case "Release":
						start := time.Now()
						_ = lease.Release(ctxFor(t, time.Minute))
						wantTook(t, start, 0)
					}
					time.Sleep(time.Second)
					mustRelease(t, q.lease("next"))
				})
			})
		}
	}
}

// endsNext has the next call of the driver end with end, an Acquire after it was granted the lock.
func (s *service) endsNext(end func()) {
	next := func() { // once: a further call goes to the service
		s.Change(func() { s.OnAcquire, s.OnRaise, s.OnExtend, s.OnRelease, s.OnInspect = nil, nil, nil, nil, nil })
		end()
	}
	d := s.Driver()
	s.Change(func() {
		s.OnAcquire = func(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
			reply, err := d.Acquire(ctx, req)
			next()
			return reply, err
		}
		s.OnRaise = func(context.Context, driver.RaiseRequest) (_ driver.RaiseReply, _ error) { next(); return }
		s.OnExtend = func(context.Context, []driver.ExtendRequest) []driver.ExtendReply { next(); return nil }
		s.OnRelease = func(context.Context, driver.ReleaseRequest) (_ driver.ReleaseReply, _ error) { next(); return }
		s.OnInspect = func(context.Context, driver.Name) (_ driver.State, _ error) { next(); return }
	})
}

// Without a limit of its own, a call waits a TTL for a service that never answers: then nothing is left.
func TestLocker_C_noCallTakesLongerThanATTL(t *testing.T) {
	each(t, map[string]error{
		"Acquire": distlock.ErrUnavailable, "Release": distlock.ErrOutcomeUnknown,
		"Extend": distlock.ErrLost, "RaiseToken": distlock.ErrLost,
	}, func(t *testing.T, s *service, want error) {
		operation := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		l := s.locker(t, patient)
		lease := mustAcquire(t, l)
		if operation == "Acquire" {
			mustRelease(t, lease)
		}
		s.Inject(all(drivertest.Fault{HoldBefore: in(time.Hour)}))
		start := time.Now()
		wantErr(t, calls[operation](context.Background(), l, lease), want)
		if took := time.Since(start); took > ttl {
			t.Errorf("it took %s", took)
		}
		s.Inject(nil)
	})
}

// A backend that hangs keeps no caller for longer than the limit of the call.
func TestLocker_C_backendHangs_callLimited(t *testing.T) {
	lost, unknown := distlock.ErrLost, distlock.ErrOutcomeUnknown
	type row struct {
		op   drivertest.Op
		call string
		want error
		left time.Duration // of the lease
		took time.Duration
	}
	each(t, map[string]row{
		"Inspect":              {drivertest.Inspect, "Inspect", distlock.ErrUnavailable, 0, 5 * time.Second},
		"Extend":               {drivertest.Extend, "Extend", lost, 10 * time.Second, 10 * time.Second},
		"RaiseToken":           {drivertest.Raise, "RaiseToken", lost, 10 * time.Second, 10 * time.Second},
		"Release":              {drivertest.Release, "Release", unknown, 10 * time.Second, 5 * time.Second},
		"Release near the end": {drivertest.Release, "Release", unknown, time.Second, time.Second},
		"Release at the end": {
			drivertest.Release, "Release", unknown, time.Millisecond, 100 * time.Millisecond},
	}, func(t *testing.T, s *service, c row) {
		const ttl = 30 * time.Second
		l := s.locker(t, withTTL(ttl), unrenewed)
		lease := mustAcquire(t, l)
		if c.left > 0 { // trust ends 552 ms before the TTL
			time.Sleep(ttl - 552*time.Millisecond - c.left)
		}
		s.Inject(on(c.op, drivertest.Fault{HoldBefore: in(time.Hour)}))
		start := time.Now()
		wantErr(t, calls[c.call](context.Background(), l, lease), c.want, context.DeadlineExceeded)
		wantTook(t, start, c.took)
		s.Inject(nil)
	})
}
