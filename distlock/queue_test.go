package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
)

// queue is a number of calls of Acquire that have joined the queue one after the other.
type queue struct {
	t      *testing.T
	mu     sync.Mutex
	order  []string // of the grants
	leases map[string]*distlock.Lease
	failed map[string]error
	cancel map[string]context.CancelFunc
	wg     sync.WaitGroup
}

func newQueue(t *testing.T) *queue {
	return &queue{t: t, leases: make(map[string]*distlock.Lease), failed: make(map[string]error),
		cancel: make(map[string]context.CancelFunc)}
}

// join adds a waiter, and returns when it waits. A positive hold is how long it keeps the lock;
// otherwise the test releases it.
func (q *queue) join(l *distlock.Locker, name string, hold time.Duration) {
	ctx, cancel := context.WithCancel(q.t.Context())
	q.mu.Lock()
	q.cancel[name] = cancel
	q.mu.Unlock()
	q.wg.Go(func() {
		lease, err := l.Acquire(ctx, key)
		q.mu.Lock()
		if err != nil {
			q.failed[name] = err
		} else {
			q.order = append(q.order, name)
			q.leases[name] = lease
		}
		q.mu.Unlock()
		if err == nil && hold > 0 {
			time.Sleep(hold)
			if err := lease.Release(context.Background()); err != nil {
				q.t.Errorf("Release of %s: %v", name, err)
			}
		}
	})
	synctest.Wait()
}

func (q *queue) granted() []string {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.order)
}

func (q *queue) lease(name string) *distlock.Lease {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leases[name] == nil {
		q.t.Fatalf("%s does not hold the lock: %v; granted were %v", name, q.failed[name], q.order)
	}
	return q.leases[name]
}

func (q *queue) err(name string) error {
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed[name]
}

func (q *queue) leave(name string) {
	q.mu.Lock()
	cancel := q.cancel[name]
	q.mu.Unlock()
	cancel()
	synctest.Wait()
}

func (q *queue) want(names ...string) {
	q.t.Helper()
	if got := q.granted(); !slices.Equal(got, names) {
		q.t.Errorf("granted in the order %v, want %v", got, names)
	}
}

var patient = distlock.Options{Wait: -1}

func TestQueue_L_firstComeFirstServed(t *testing.T) {
	for name, hold := range map[string]time.Duration{"short holds": time.Millisecond,
		"long holds": 50 * time.Millisecond, "both": 7 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newService().locker(t, patient)
				q := newQueue(t)
				var names []string
				for i := range 20 {
					names = append(names, fmt.Sprint(i))
					q.join(l, names[i], hold)
				}
				q.wg.Wait()
				q.want(names...)
				last := int64(0)
				for _, name := range names {
					if fence := q.lease(name).Fence(); fence <= last {
						t.Errorf("S2: fence %d after %d", fence, last)
					} else {
						last = fence
					}
				}
			})
		})
	}
}

// The killed process holds the lock and also waits for it. After the TTL the backend may hand the lock
// to the dead waiter for a second. The promise is a TTL and a second, and the next waiter needs a part
// of that to notice.
func TestQueue_L_deadHolderAndWaiter_TTLPlus1s(t *testing.T) {
	const ttl, ways = time.Second, 50 * time.Millisecond
	for _, gap := range []time.Duration{0, 1, 20, 49, 50, 99, 100, 101, 150, 300} {
		gap *= time.Millisecond
		t.Run(gap.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s, opts := newService(), distlock.Options{TTL: ttl, Wait: -1}
				dies, q := s.twin(), newQueue(t)
				dead, next := dies.locker(t, opts), s.twin().locker(t, opts)
				mustAcquire(t, dead)
				time.Sleep(gap)
				q.join(dead, "dead", 0)
				killed := time.Now()
				dies.Inject(cutOff(errBroken))
				q.join(next, "next", time.Millisecond)
				for range int(2 * ttl / time.Millisecond) {
					time.Sleep(time.Millisecond)
					if slices.Contains(q.granted(), "next") {
						break
					}
				}
				if took := time.Since(killed); took > ttl+time.Second-ways {
					t.Errorf("the next one had the lock after %s, and the ways to and from the service still to come", took)
				}
				q.leave("dead")
				dies.Inject(nil)
				q.wg.Wait()
			})
		})
	}
}

func TestHandoff_local_noRequest(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		l := s.locker(t, distlock.Options{Wait: -1, Observer: seen})
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		q.join(l, "b", 0)
		time.Sleep(5 * time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		time.Sleep(time.Millisecond)
		mustRelease(t, a)
		b := q.lease("b")
		if acquires, releases := s.Calls(drivertest.Acquire), s.Calls(drivertest.Release); acquires != 1 || releases != 0 {
			t.Errorf("the service was asked for the lock %d times, and to release it %d times", acquires, releases)
		}
		if a.Fence() != first.Fence()+1 || b.Fence() != first.Fence()+2 {
			t.Errorf("S2: fences %d, %d, %d, want one after the other", first.Fence(), a.Fence(), b.Fence())
		}
		if err := first.Err(); !errors.Is(err, distlock.ErrNotHeld) || context.Cause(first.Context()) != distlock.ErrNotHeld {
			t.Errorf("the first lease: %v, cause %v", err, context.Cause(first.Context()))
		}
		mustRelease(t, first) // once more: without an effect
		if err := b.Err(); err != nil {
			t.Errorf("S1: %v", err)
		}
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("S1: a second lease: %v", err)
		}
		mustRelease(t, b)
		if s.state(t).Held {
			t.Error("the service keeps the lock")
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for _, op := range seen.ended {
			switch {
			case op.Name == distlock.OpAcquire && op.Fence == a.Fence():
				if op.Handoff != distlock.HandoffLocal || op.Attempts != 0 || op.Blocker["number"] != "1" ||
					op.Wait != 5*time.Millisecond {
					t.Errorf("acquire %+v", op)
				}
			case op.Name == distlock.OpRelease && op.Fence == first.Fence():
				if op.Handoff != distlock.HandoffLocal || op.Attempts != 0 || op.Held != 5*time.Millisecond {
					t.Errorf("release %+v", op)
				}
			case op.Name == distlock.OpRelease && op.Fence == b.Fence():
				if op.Handoff != "" || op.Attempts != 1 {
					t.Errorf("release %+v", op)
				}
			}
		}
	})
}

// Outside the window the backend decides, and grants a fresh TTL and a token above the reserved ones.
func TestHandoff_local_only10ms(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(9999 * time.Microsecond)
		if calls := s.Calls(drivertest.Acquire); calls != 1 {
			t.Errorf("the service was asked %d times in the window", calls)
		}
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if waiters := s.state(t).Waiters; waiters != 1 {
			t.Errorf("%d wait in the queue of the backend when the window has passed, want 1", waiters)
		}
		mustRelease(t, first)
		a := q.lease("a")
		if a.Fence() <= first.Fence()+driver.FenceBlock {
			t.Errorf("S2: fence %d, after a block from %d", a.Fence(), first.Fence())
		}
		mustRelease(t, a)
	})
}

// A handoff within the same microsecond goes through the backend. Tokens ahead of the clock would have
// to be kept for as long.
func TestHandoff_S2_tokensFollowTheClock(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		q.join(l, "b", 0)
		time.Sleep(time.Microsecond)
		mustRelease(t, first)
		a := q.lease("a")
		mustRelease(t, a) // in the same microsecond
		b := q.lease("b")
		if calls := s.Calls(drivertest.Acquire); a.Fence() != first.Fence()+1 ||
			b.Fence() <= first.Fence()+driver.FenceBlock || calls != 2 {
			t.Errorf("tokens %d, %d, %d, and the service was asked %d times", first.Fence(), a.Fence(), b.Fence(), calls)
		}
		mustRelease(t, b)
	})
}

// Waiters of other processes are overtaken by the waiters known at the grant, once each, for 10 ms.
func TestHandoff_L_overtakesOncePerWaiter(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		here, there := s.twin().locker(t, patient), s.twin().locker(t, patient)
		blocker := mustAcquire(t, s.locker(t, patient))
		q := newQueue(t)
		for i := range 3 {
			q.join(here, fmt.Sprint("here", i), time.Millisecond)
		}
		q.join(there, "there", time.Millisecond)
		time.Sleep(time.Millisecond) // tokens come with time
		mustRelease(t, blocker)
		synctest.Wait()
		for i := range 3 { // after the grant
			q.join(here, fmt.Sprint("late", i), time.Millisecond)
		}
		q.wg.Wait()
		q.want("here0", "here1", "here2", "there", "late0", "late1", "late2")
	})
}

// A handoff changes nothing in the backend: the new lease ends, and is renewed, at the times of the old
// one.
func TestHandoff_N_keepsDeadlineAndRenewal(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		start := time.Now()
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(9 * time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		time.Sleep(ttl/3 - 9*time.Millisecond - 1)
		if calls := s.Calls(drivertest.Extend); calls != 0 {
			t.Errorf("renewed %d times before it is due", calls)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if calls := s.Calls(drivertest.Extend); calls != 1 {
			t.Errorf("renewed %d times when it was due", calls)
		}
		s.Inject(always(drivertest.Extend, errSilence))
		<-a.Context().Done()
		want := ttl/3 + ttl - ttl/100 - 2*time.Millisecond - ttl/50
		if took := time.Since(start); took != want {
			t.Errorf("lost after %s, want %s", took, want)
		}
		if cause := context.Cause(a.Context()); cause != distlock.ErrLost {
			t.Errorf("cause %v", cause)
		}
	})
}

// Without renewal the new lease ends with the grant.
func TestHandoff_N_endsWithItsGrant(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Wait: -1, RenewEvery: -1})
		start := time.Now()
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(9 * time.Millisecond)
		mustRelease(t, first)
		<-q.lease("a").Context().Done()
		if took, want := time.Since(start), ttl-ttl/100-2*time.Millisecond-ttl/50; took != want {
			t.Errorf("lost after %s, want %s", took, want)
		}
	})
}

// A lock is not handed off if its time in the backend is not that of a grant, or while a request is
// under way.
func TestHandoff_onlyAsGranted(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *service, l *distlock.Locker, le *distlock.Lease){
		"extended": func(t *testing.T, _ *service, _ *distlock.Locker, le *distlock.Lease) {
			_ = le.Extend(t.Context(), time.Hour)
		},
		"extended, and not answered": func(t *testing.T, s *service, _ *distlock.Locker, le *distlock.Lease) {
			s.Inject(after(drivertest.Extend, errBroken))
			_ = le.Extend(t.Context(), time.Hour)
			s.Inject(nil)
		},
		"an Extend under way": func(t *testing.T, s *service, _ *distlock.Locker, le *distlock.Lease) {
			underWay(t, s, drivertest.Extend, func(ctx context.Context) { _ = le.Extend(ctx, ttl) })
		},
		"a RaiseToken under way": func(t *testing.T, s *service, _ *distlock.Locker, le *distlock.Lease) {
			underWay(t, s, drivertest.Raise, func(ctx context.Context) { _ = fencing.RaiseToken(ctx, le, le.Fence()+100_000) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, patient)
				first := mustAcquire(t, l)
				q := newQueue(t)
				q.join(l, "a", 0)
				spoil(t, s, l, first)
				time.Sleep(time.Millisecond)
				mustRelease(t, first)
				a := q.lease("a")
				if calls := s.Calls(drivertest.Release); calls != 1 {
					t.Errorf("the service had %d releases, want 1", calls)
				}
				if a.Fence() <= first.Fence()+driver.FenceBlock {
					t.Errorf("S2: fence %d after a block from %d", a.Fence(), first.Fence())
				}
				mustRelease(t, a)
			})
		})
	}
}

// underWay makes a call that the service does not answer for a second, whose caller has left.
func underWay(t *testing.T, s *service, op drivertest.Op, call func(ctx context.Context)) {
	answer := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(answer) })
	s.Inject(on(op, drivertest.Fault{HoldBefore: answer}))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Microsecond, cancel)
	call(ctx)
	s.Inject(nil)
}

// Waiters have asked for another TTL.
func TestHandoff_onlyTheLockersTTL(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		lease, err := l.Acquire(t.Context(), key, distlock.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(time.Millisecond) // tokens come with time
		mustRelease(t, lease)
		a := q.lease("a")
		if left := s.state(t).TTL; left > ttl {
			t.Errorf("the lock lasts for %s", left)
		}
		mustRelease(t, a)
	})
}

// Tokens continue above a token that a store has asked for.
func TestHandoff_S2_aboveARaisedToken(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		above := first.Fence() + time.Hour.Microseconds()
		if err := fencing.RaiseToken(t.Context(), first, above); err != nil {
			t.Fatal(err)
		}
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		if a.Fence() <= above {
			t.Errorf("fence %d, a store has seen %d", a.Fence(), above)
		}
		mustRelease(t, a)
		if next := mustAcquire(t, l); next.Fence() <= a.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), a.Fence())
		}
	})
}
