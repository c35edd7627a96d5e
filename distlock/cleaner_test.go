package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// A lock that may have been granted is released as soon as the backend answers, before its TTL ends.
func TestCleanUp_isTriedUntilTheServiceAnswers(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
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
		s.wantFree(t)
		if reply, err := s.spy.Driver.Acquire(t.Context(), s.granted()); err != nil || reply.Outcome != driver.Cancelled {
			t.Errorf("a copy that arrives now is answered %+v, %v", reply, err)
		}
	})
}

// unhurried takes its time for a release, and loses the first one; it keeps deadlines.
type unhurried struct {
	*spy
	takes time.Duration
	lost  atomic.Bool
}

func (u *unhurried) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	takes := u.takes
	if u.lost.CompareAndSwap(false, true) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return u.spy.Release(ctx, req)
	case <-ctx.Done():
		return driver.ReleaseReply{}, ctx.Err()
	}
}

// A try that gets no answer is given up, and the next one has more time.
func TestCleanUp_adaptsToASlowService(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.Faults = drivertest.NewFaults(&unhurried{spy: s.spy, takes: 600 * time.Millisecond})
		l := s.locker(t, distlock.Options{})
		s.Inject(after(drivertest.Acquire, errSilence))
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(2 * time.Second)
		s.wantFree(t)
	})
}

// After a definite refusal there is nothing to release.
func TestCleanUp_isNotForAClearRefusal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mustAcquire(t, s.twin().locker(t, distlock.Options{}))
		l := s.locker(t, distlock.Options{})
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("TryAcquire: %v", err)
		}
		for key, refusal := range map[string]error{"foreign": driver.ErrForeign,
			"no memory": errors.Join(driver.ErrRefused, driver.ErrNotDone)} {
			s.Inject(always(drivertest.Acquire, refusal))
			if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, refusal) || !errors.Is(err, distlock.ErrRefused) {
				t.Errorf("TryAcquire: %v", err)
			}
		}
		s.Inject(nil)
		synctest.Wait()
		if n := s.Calls(drivertest.Release); n != 0 {
			t.Errorf("%d clean-ups", n)
		}
	})
}

// ignoresCtx is a driver that ignores the context of Acquire.
type ignoresCtx struct{ *spy }

func (d ignoresCtx) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return d.spy.Acquire(context.WithoutCancel(ctx), req)
}

// The caller has left, and neither the mark nor the answer alone would do.
func TestCleanUp_grantAfterItsCallerLeft(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		lost  error
	}{
		"with an answer that is lost":       {time.Second, errSilence},
		"in time, with the answer too late": {time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				s.Faults = drivertest.NewFaults(ignoresCtx{s.spy})
				l := s.locker(t, distlock.Options{})
				hold := make(chan struct{})
				s.Inject(func(call drivertest.Call) drivertest.Fault {
					switch {
					case call.Op != drivertest.Acquire:
						return drivertest.Fault{}
					default:
						return drivertest.Fault{HoldAfter: hold, After: c.lost}
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if _, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire: %v", err)
				}
				time.Sleep(c.after)
				close(hold)
				synctest.Wait()
				if state := s.state(t); state.Held || s.granted().Owner == "" {
					t.Errorf("granted to %q, and now %+v", s.granted().Owner, state)
				}
			})
		})
	}
}

// A packet can be held on its way for longer than a short TTL, and its caller be gone.
func TestCleanUp_S1_heldAcquireGrantsNothing(t *testing.T) {
	for name, outage := range map[string]time.Duration{"cleaned up at once": 0,
		"cleaned up after an outage": 15 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				s.Faults = drivertest.NewFaults(ignoresCtx{s.spy})
				l := s.locker(t, distlock.Options{TTL: time.Second})
				held, back := in(20*time.Second), time.Now().Add(outage)
				s.Inject(func(c drivertest.Call) drivertest.Fault {
					switch {
					case c.Op == drivertest.Acquire:
						return drivertest.Fault{HoldBefore: held}
					case time.Now().Before(back):
						return drivertest.Fault{Before: errSilence}
					}
					return drivertest.Fault{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if _, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("Acquire: %v", err)
				}
				time.Sleep(21 * time.Second)
				if got := s.granted(); got.Owner != "" {
					t.Errorf("the lock was granted to %q, which has no holder", got.Owner)
				}
			})
		})
	}
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

// After the loss of all leases at once, the clean-up does not take all connections of the backend.
func TestCleanUp_ofManyIsNoStorm(t *testing.T) {
	const leases = 1000
	inService(t, func(t *testing.T, s *service) {
		c := &crowded{spy: s.spy}
		faults := drivertest.NewFaults(c)
		l := (&service{Faults: faults, spy: s.spy}).locker(t, distlock.Options{})
		for i := range leases {
			if _, err := l.Acquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		faults.Inject(always(drivertest.Extend, errSilence))
		time.Sleep(ttl) // all are lost, and their clean-up has begun
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

// What waits for another try is tried at once when the Locker closes.
func TestClose_hurriesCleanUps(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{TTL: time.Minute})
		s.Inject(func(c drivertest.Call) drivertest.Fault {
			if c.Op == drivertest.Acquire {
				return drivertest.Fault{After: errSilence}
			}
			return drivertest.Fault{Before: errSilence}
		})
		_, _ = l.Acquire(t.Context(), key)
		time.Sleep(5*time.Second + 300*time.Millisecond)
		s.Inject(nil)
		start := time.Now()
		mustClose(t, l)
		if took := time.Since(start); took > 0 || s.state(t).Held {
			t.Errorf("Close took %s; %+v", took, s.state(t))
		}
	})
}

// But not the clean-up after a loss: the cancelled work keeps its margin.
func TestClose_N_leavesTheMarginOfALoss(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l, other := s.locker(t, distlock.Options{TTL: 30 * time.Second, RenewEvery: -1}), s.locker(t, distlock.Options{})
		lease := mustAcquire(t, l)
		<-lease.Context().Done()
		go mustClose(t, l)
		time.Sleep(200 * time.Millisecond) // rolling back
		if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("another one, while the work ends: %v", err)
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

// sick is a backend whose node of the names from "sick-" hangs, and a Locker that holds some of them.
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

func TestClose_backendHangs_noWaitForCleanUps(t *testing.T) {
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
		if _, err := l.Acquire(t.Context(), key); !errors.Is(err, distlock.ErrUnavailable) || s.granted().Name.Key != key {
			t.Fatalf("Acquire: %v; the last grant is %+v", err, s.granted())
		}
		time.Sleep(time.Second)
		s.wantFree(t)
	})
}

// A service that is away leaves jobs for two minutes. Close still does them.
func TestCleanUp_C_manyUnknownAcquires_fewGoroutines(t *testing.T) {
	const calls = 2000
	inBubble(t, func(t *testing.T) {
		d, s := newTimed()
		l := s.locker(t, distlock.Options{})
		before := runtime.NumGoroutine()
		d.choose(all)
		s.Inject(after(drivertest.Acquire, errSilence))
		for i := range calls {
			if _, err := l.Acquire(t.Context(), fmt.Sprint(i)); !errors.Is(err, distlock.ErrUnavailable) {
				t.Fatalf("Acquire: %v", err)
			}
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d goroutines for %d calls", n, calls)
		}
		d.choose(nil)
		mustClose(t, l)
		for i := range calls {
			name := driver.Name{Namespace: "distlock", Key: fmt.Sprint(i)}
			if state, _ := s.spy.Driver.Inspect(t.Context(), name); state.Held {
				t.Fatalf("lock %d stands", i)
			}
		}
	})
}
