package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

var (
	errTurnedAway = fmt.Errorf("failing over: %w", driver.ErrTemporary)
	errForbidden  = fmt.Errorf("no such right: %w", driver.ErrRefused)
	errSilence    = errors.New("connection refused")
)

// from makes the calls of op fail before they reach the service, from the given one on and for some.
func from(op drivertest.Op, first, calls int, err error) func(drivertest.Call) drivertest.Fault {
	return func(c drivertest.Call) drivertest.Fault {
		if c.Op == op && c.N >= first && c.N < first+calls {
			return drivertest.Fault{Before: err}
		}
		return drivertest.Fault{}
	}
}

func TestAcquire_outlivesAnInterruptionOfTheService(t *testing.T) {
	const many = 1 << 20
	for name, c := range map[string]struct {
		busy  bool // the service has answered that the lock is held, before it fails
		err   error
		calls int
		try   bool
		want  error         // nil: a lease
		took  time.Duration // at most
	}{
		"turned away for a moment":           {err: errTurnedAway, calls: 5, took: time.Second},
		"turned away for the whole wait":     {err: errTurnedAway, calls: many, want: distlock.ErrUnavailable, took: 2 * time.Second},
		"turned away, without waiting":       {err: errTurnedAway, calls: 1, try: true, want: distlock.ErrUnavailable},
		"no answer at all":                   {err: errSilence, calls: 1, want: distlock.ErrUnavailable},
		"no answer for a moment, in line":    {busy: true, err: errSilence, calls: 5, took: 2 * time.Second},
		"no answer any more, in line":        {busy: true, err: errSilence, calls: many, want: distlock.ErrUnavailable, took: 2 * time.Second},
		"a right is missing, in line":        {busy: true, err: errForbidden, calls: many, want: distlock.ErrUnavailable, took: time.Second},
		"somebody else's data, in line":      {busy: true, err: driver.ErrForeign, calls: many, want: distlock.ErrUnavailable, took: time.Second},
		"a right is missing from the start":  {err: errForbidden, calls: 1, want: distlock.ErrUnavailable},
		"turned away for a moment, in line":  {busy: true, err: errTurnedAway, calls: 5, took: 2 * time.Second},
		"turned away for the wait, in line.": {busy: true, err: errTurnedAway, calls: many, want: distlock.ErrUnavailable, took: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newService()
				first := 0
				if c.busy {
					first = 1
					holder := mustAcquire(t, s.twin().locker(t, distlock.Options{}))
					time.AfterFunc(time.Second, func() { _ = holder.Release(context.Background()) })
				}
				l := s.locker(t, distlock.Options{Wait: 2 * time.Second})
				s.Inject(from(drivertest.Acquire, first, c.calls, c.err))
				acquire := l.Acquire
				if c.try {
					acquire = l.TryAcquire
				}
				start := time.Now()
				lease, err := acquire(t.Context(), key)
				took := time.Since(start)
				if !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, c.err) {
					t.Errorf("Acquire: %v, want %v", err, c.want)
				}
				if took > c.took {
					t.Errorf("it took %s, more than %s", took, c.took)
				}
				if c.want == nil && err == nil {
					mustRelease(t, lease)
				}
			})
		})
	}
}

// Who would wait for ever does not wait for ever on a service that has gone.
func TestAcquire_C_anOutageOfATTLEndsTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{Wait: -1})
		s.Inject(always(drivertest.Acquire, errTurnedAway))
		start := time.Now()
		_, err := l.Acquire(t.Context(), key)
		if took := time.Since(start); !errors.Is(err, distlock.ErrUnavailable) || took < ttl || took > ttl+time.Second {
			t.Errorf("Acquire: %v after %s, want ErrUnavailable after a TTL", err, took)
		}
	})
}

func TestAcquire_cancelledDuringAnInterruptionSaysBoth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		s.Inject(always(drivertest.Acquire, errTurnedAway))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := l.Acquire(ctx, key)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("Acquire: %v after %s", err, time.Since(start))
		}
	})
}

func TestLock_AcquireWithRetryCountsAnInterruption(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lock := s.locker(t, distlock.Options{}).NewLock(key, ttl)
		s.Inject(from(drivertest.Acquire, 0, 4, errTurnedAway))
		if err := lock.AcquireWithRetry(t.Context(), 2, time.Second); !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("with two failures of two: %v", err)
		}
		if err := lock.AcquireWithRetry(t.Context(), 3, time.Second); err != nil {
			t.Errorf("with two failures of three: %v", err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What may have been taken is given back as soon as the service can be reached again, not only when the TTL has passed.
func TestCleanUp_isTriedUntilTheServiceAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Acquire:
				return drivertest.Fault{After: errSilence}
			case c.Op == drivertest.Release && c.N < 4:
				return drivertest.Fault{Before: errSilence}
			}
			return drivertest.Fault{}
		})
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, distlock.ErrUnavailable) {
			t.Fatalf("Acquire: %v", err)
		}
		if !s.state(t).Held {
			t.Fatal("the service has no grant that could be left behind")
		}
		time.Sleep(time.Second)
		if state := s.state(t); state.Held {
			t.Errorf("after a second the lock still stands: %+v", state)
		}
		if reply, err := s.spy.Driver.Acquire(t.Context(), s.granted()); err != nil || reply.Outcome != driver.Void {
			t.Errorf("a copy that arrives now is answered %+v, %v", reply, err)
		}
	})
}

func TestRelease_thatFailsIsTriedAgainInTheBackground(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		lease := mustAcquire(t, s.locker(t, distlock.Options{}))
		s.Inject(from(drivertest.Release, 0, 3, errTurnedAway))
		if err := lease.Release(t.Context()); !errors.Is(err, distlock.ErrUnavailable) {
			t.Fatalf("Release: %v", err)
		}
		time.Sleep(500 * time.Millisecond)
		if state := s.state(t); state.Held {
			t.Errorf("the lock still stands: %+v", state)
		}
		s.Inject(nil)
		mustRelease(t, lease) // says what has become of it
	})
}

// crowded counts how many releases are under way at a time.
type crowded struct {
	*spy
	mu        sync.Mutex
	now, most int
}

func (c *crowded) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(time.Millisecond)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	return c.spy.Release(ctx, req)
}

// When a Locker loses everything at once, the clean-up neither takes the service's connections from others nor a
// goroutine per lease.
func TestCleanUp_ofManyIsNoStorm(t *testing.T) {
	const leases = 1000
	inBubble(t, func(t *testing.T) {
		s := newService()
		c := &crowded{spy: s.spy}
		faults := drivertest.NewFaults(c)
		l := (&service{Faults: faults, spy: s.spy}).locker(t, distlock.Options{})
		for i := range leases {
			if _, err := l.Acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		before := runtime.NumGoroutine()
		faults.Inject(always(drivertest.Extend, errSilence))
		time.Sleep(ttl) // all are lost, and their clean-up has begun
		if more := runtime.NumGoroutine() - before; more > 20 {
			t.Errorf("%d goroutines more", more)
		}
		time.Sleep(leases * time.Millisecond)
		if released := faults.Calls(drivertest.Release); released != leases {
			t.Errorf("%d of %d were cleaned up", released, leases)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.most > 16 {
			t.Errorf("%d clean-ups at a time", c.most)
		}
	})
}

// A process that shuts down while the service is away does not wait until every TTL has passed.
func TestClose_doesNotWaitLongForAServiceThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{TTL: time.Minute})
		for i := range 10 {
			if _, err := l.Acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.Inject(cutOff(errSilence))
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(5 * time.Second)
		start := time.Now()
		mustClose(t, l)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
	})
}

// hanging answers no release, and renews nothing, for the names that hang selects, until ctx ends.
type hanging struct {
	*spy
	mu   sync.Mutex
	hang func(driver.Name) bool
}

func (h *hanging) choose(hang func(driver.Name) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hang = hang
}

func (h *hanging) hangs(name driver.Name) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hang != nil && h.hang(name)
}

func (h *hanging) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if h.hangs(req.Name) {
		<-ctx.Done()
		return driver.ReleaseReply{}, ctx.Err()
	}
	return h.spy.Release(ctx, req)
}

func (h *hanging) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := h.spy.Extend(ctx, reqs)
	for i, req := range reqs {
		if h.hangs(req.Name) {
			<-ctx.Done()
			replies[i] = driver.ExtendReply{Err: ctx.Err()}
		}
	}
	return replies
}

// sick is a service of which the node that keeps the names from "sick-" hangs, and a Locker that holds some of these.
func sick(t *testing.T, leases int) (*service, *distlock.Locker) {
	t.Helper()
	h := &hanging{spy: newService().spy}
	s := &service{Faults: drivertest.NewFaults(h), spy: h.spy}
	l := s.locker(t, distlock.Options{})
	for i := range leases {
		if _, err := l.Acquire(t.Context(), fmt.Sprint("sick-", i)); err != nil {
			t.Fatal(err)
		}
	}
	h.choose(func(name driver.Name) bool { return strings.HasPrefix(name.Key, "sick-") })
	return s, l
}

func TestClose_doesNotWaitForCleanUpsOfAServiceThatHangs(t *testing.T) {
	for _, leases := range []int{1, 1000} {
		t.Run(fmt.Sprint(leases), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				_, l := sick(t, leases)
				time.Sleep(2 * ttl) // all are lost
				start := time.Now()
				mustClose(t, l)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("Close took %s", took)
				}
			})
		})
	}
}

// In a Cluster one node may hang while the others are well.
func TestCleanUp_doesNotWaitForANodeThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, l := sick(t, 10)
		time.Sleep(ttl)
		s.Inject(after(drivertest.Acquire, errSilence))
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, distlock.ErrUnavailable) || !s.state(t).Held {
			t.Fatalf("Acquire: %v; the service: %+v", err, s.state(t))
		}
		time.Sleep(time.Second)
		if state := s.state(t); state.Held {
			t.Errorf("a second later the lock stands: %+v", state)
		}
	})
}

// A wave of requests is cancelled while the service, at some distance, works at them.
func TestCleanUp_ofManyCancelledAcquiresTakesASecond(t *testing.T) {
	const callers, roundTrip = 200, 50 * time.Millisecond
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{TTL: time.Minute})
		s.Inject(func(drivertest.Call) drivertest.Fault {
			answer := make(chan struct{})
			time.AfterFunc(roundTrip, func() { close(answer) })
			return drivertest.Fault{HoldAfter: answer}
		})
		ctx, cancel := context.WithTimeout(t.Context(), roundTrip/2)
		defer cancel()
		var calls sync.WaitGroup
		for i := range callers {
			calls.Go(func() { _, _ = l.Acquire(ctx, fmt.Sprint(i)) })
		}
		calls.Wait()
		time.Sleep(time.Second)
		left := 0
		for i := range callers {
			if state, _ := s.spy.Driver.Inspect(t.Context(), driver.Name{Namespace: "distlock", Key: fmt.Sprint(i)}); state.Held {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d locks stand", left, callers)
		}
	})
}

// The Locker gives a call up after some time by itself. That is no deadline of the caller's.
func TestAcquire_C_theLockersOwnDeadlineIsNotTheCallers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		l := s.locker(t, distlock.Options{Wait: -1})
		s.Inject(always(drivertest.Acquire, context.DeadlineExceeded))
		_, err := l.Acquire(t.Context(), key)
		if !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		s.Inject(nil)
		lease := mustAcquire(t, l)
		s.Inject(always(drivertest.Extend, context.DeadlineExceeded))
		if err := lease.Extend(t.Context(), time.Minute); !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Extend: %v", err)
		}
	})
}

// Who was told who holds the lock, before the service went silent, still learns of it; but it is not "busy".
func TestAcquire_C_anInterruptionAfterABusyAnswerShowsBoth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newService()
		mustAcquire(t, s.twin().locker(t, distlock.Options{Holder: "the holder"}))
		l := s.locker(t, distlock.Options{Wait: time.Second})
		s.Inject(from(drivertest.Acquire, 1, 1<<20, errSilence))
		_, err := l.Acquire(t.Context(), key)
		var busy *distlock.BusyError
		if !errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, distlock.ErrNotAcquired) || !errors.Is(err, errSilence) {
			t.Errorf("Acquire: %v", err)
		}
		if !errors.As(err, &busy) || busy.Holder != "the holder" || !strings.Contains(err.Error(), "the holder") {
			t.Errorf("Acquire: %v, with %+v", err, busy)
		}
	})
}
