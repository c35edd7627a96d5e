package distlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
			wantErr(q.t, lease.Release(context.Background()), nil)
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
	wantList(q.t, q.granted(), names...)
}

// joinMany adds n waiters with the names "0", "1", …
func (q *queue) joinMany(l *distlock.Locker, n int, hold time.Duration) (names []string) {
	for i := range n {
		names = append(names, strconv.Itoa(i))
		q.join(l, names[i], hold)
	}
	return names
}

// behind returns a lease, and waiters of the same process behind it.
func (s *service) behind(t *testing.T, with []option, names ...string) (*distlock.Lease, *queue) {
	t.Helper()
	l, q := s.locker(t, append(with, patient)...), newQueue(t)
	lease := mustAcquire(t, l)
	for _, name := range names {
		q.join(l, name, 0)
	}
	return lease, q
}

// wantNewGrant fails the test unless the lease has a grant of its own after another's.
func wantNewGrant(t *testing.T, lease, after *distlock.Lease) {
	t.Helper()
	if lease.Fence() <= after.Fence()+driver.FenceBlock {
		t.Errorf("S2: fence %d after a block from %d", lease.Fence(), after.Fence())
	}
}

func TestQueue_L_firstComeFirstServed(t *testing.T) {
	each(t, map[string]time.Duration{
		"short holds": time.Millisecond, "long holds": 50 * time.Millisecond, "both": 7 * time.Millisecond,
	}, func(t *testing.T, s *service, hold time.Duration) {
		q := newQueue(t)
		names := q.joinMany(s.locker(t, patient), 20, hold)
		q.wg.Wait()
		q.want(names...)
		for i, name := range names[1:] {
			if fence, last := q.lease(name).Fence(), q.lease(names[i]).Fence(); fence <= last {
				t.Errorf("S2: fence %d after %d", fence, last)
			}
		}
	})
}

// The killed process holds the lock and also waits for it. After the TTL the backend may hand the lock
// to the dead waiter for a second. The promise is a TTL and a second, and the next waiter needs a part
// of that to notice.
func TestQueue_L_deadHolderAndWaiter_TTLPlus1s(t *testing.T) {
	const ttl, ways = time.Second, 50 * time.Millisecond
	for _, gap := range []time.Duration{0, 1, 20, 49, 50, 99, 100, 101, 150, 300} {
		inService(t, func(t *testing.T, s *service) {
			dies, q := s.twin(), newQueue(t)
			dead, next := dies.locker(t, withTTL(ttl), patient), s.twin().locker(t, withTTL(ttl), patient)
			mustAcquire(t, dead)
			time.Sleep(gap * time.Millisecond)
			q.join(dead, "dead", 0)
			killed := time.Now()
			dies.Inject(cutOff(errBroken))
			q.join(next, "next", time.Millisecond)
			for !slices.Contains(q.granted(), "next") && time.Since(killed) < 2*ttl {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(killed); took > ttl+time.Second-ways {
				t.Errorf("gap %d: the next one had the lock after %s, without the ways to and from the service", gap, took)
			}
			q.leave("dead")
			dies.Inject(nil)
			q.wg.Wait()
		})
	}
}

func TestHandoff_local_noRequest(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		seen := &recorder{t: t}
		first, q := s.behind(t, []option{seenBy(seen)}, "a", "b")
		time.Sleep(5 * time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		time.Sleep(time.Millisecond)
		mustRelease(t, a)
		b := q.lease("b")
		s.wantCalls(t, drivertest.Acquire, 1)
		s.wantCalls(t, drivertest.Release, 0)
		if a.Fence() != first.Fence()+1 || b.Fence() != first.Fence()+2 {
			t.Errorf("S2: fences %d, %d, %d, want one after the other", first.Fence(), a.Fence(), b.Fence())
		}
		wantErr(t, first.Err(), distlock.ErrNotHeld)
		wantCause(t, first.Context(), distlock.ErrNotHeld)
		mustRelease(t, first) // once more: without an effect
		wantErr(t, b.Err(), nil)
		wantErr(t, second(fencing.Locker(b).TryAcquire(t.Context(), key)), distlock.ErrNotAcquired)
		mustRelease(t, b)
		s.wantFree(t)
		for _, op := range seen.all() {
			right := true
			switch {
			case op.Name == distlock.OpAcquire && op.Fence == a.Fence():
				right = op.Handoff == distlock.HandoffLocal && op.Attempts == 0 && op.Blocker["number"] == "1" &&
					op.Wait == 5*time.Millisecond
			case op.Name == distlock.OpRelease && op.Fence == first.Fence():
				right = op.Handoff == distlock.HandoffLocal && op.Attempts == 0 && op.Held == 5*time.Millisecond
			case op.Name == distlock.OpRelease && op.Fence == b.Fence():
				right = op.Handoff == "" && op.Attempts == 1
			}
			if !right {
				t.Errorf("%+v", op)
			}
		}
	})
}

// Outside the window the backend decides, and grants a fresh TTL and a token above the reserved ones.
func TestHandoff_local_only10ms(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		first, q := s.behind(t, nil, "a")
		time.Sleep(9999 * time.Microsecond)
		s.wantCalls(t, drivertest.Acquire, 1)
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if waiters := s.state(t).Waiters; waiters != 1 {
			t.Errorf("%d wait in the queue of the backend when the window has passed, want 1", waiters)
		}
		mustRelease(t, first)
		a := q.lease("a")
		wantNewGrant(t, a, first)
		mustRelease(t, a)
	})
}

// A handoff within the same microsecond goes through the backend. Tokens ahead of the clock would have
// to be kept for as long.
func TestHandoff_S2_tokensFollowTheClock(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		first, q := s.behind(t, nil, "a", "b")
		time.Sleep(time.Microsecond)
		mustRelease(t, first)
		a := q.lease("a")
		mustRelease(t, a) // in the same microsecond
		b := q.lease("b")
		if a.Fence() != first.Fence()+1 {
			t.Errorf("the token %d after %d", a.Fence(), first.Fence())
		}
		wantNewGrant(t, b, first)
		s.wantCalls(t, drivertest.Acquire, 2)
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

// Without renewal the new lease ends with the grant.
func TestHandoff_N_endsWithItsGrant(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		start := time.Now()
		first, q := s.behind(t, []option{unrenewed}, "a")
		time.Sleep(9 * time.Millisecond)
		mustRelease(t, first)
		<-q.lease("a").Context().Done()
		wantTook(t, start, ttl-ttl/100-2*time.Millisecond-ttl/50)
	})
}

// A lock is not handed off if its time in the backend is not that of a grant, if its token was raised, or
// while a request is under way.
func TestHandoff_onlyAsGranted(t *testing.T) {
	each(t, map[string]func(*testing.T, *service, *distlock.Lease){
		"extended": func(t *testing.T, _ *service, le *distlock.Lease) { _ = le.Extend(t.Context(), time.Hour) },
		"extended, and not answered": func(t *testing.T, s *service, le *distlock.Lease) {
			s.Inject(after(drivertest.Extend, errBroken))
			_ = le.Extend(t.Context(), time.Hour)
			s.Inject(nil)
		},
		"an Extend under way": func(t *testing.T, s *service, le *distlock.Lease) {
			underWay(t, s, drivertest.Extend, func(ctx context.Context) { _ = le.Extend(ctx, ttl) })
		},
		"a raised token": func(t *testing.T, _ *service, le *distlock.Lease) {
			must(t, fencing.RaiseToken(t.Context(), le, le.Fence()+time.Hour.Microseconds()))
		},
		"a RaiseToken under way": func(t *testing.T, s *service, le *distlock.Lease) {
			underWay(t, s, drivertest.Raise, func(ctx context.Context) { _ = fencing.RaiseToken(ctx, le, le.Fence()+100_000) })
		},
	}, func(t *testing.T, s *service, spoil func(*testing.T, *service, *distlock.Lease)) {
		first, q := s.behind(t, nil, "a")
		granted := first.Fence()
		spoil(t, s, first)
		time.Sleep(time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		s.wantCalls(t, drivertest.Release, 1)
		if a.Fence() <= max(first.Fence(), granted+driver.FenceBlock) {
			t.Errorf("S2: fence %d after %d, and a block from %d", a.Fence(), first.Fence(), granted)
		}
		mustRelease(t, a)
	})
}

// underWay makes a call that the service does not answer for a second, whose caller has left.
func underWay(t *testing.T, s *service, op drivertest.Op, call func(ctx context.Context)) {
	s.Inject(on(op, drivertest.Fault{HoldBefore: in(time.Second)}))
	call(ctxFor(t, time.Microsecond))
	s.Inject(nil)
}

// Waiters have asked for another TTL.
func TestHandoff_onlyTheLockersTTL(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		lease, q := mustAcquire(t, l, distlock.WithTTL(time.Minute)), newQueue(t)
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

// A lease near its end would leave less to the next holder than a new grant.
func TestHandoff_shortLease_isReleased(t *testing.T) {
	type row struct {
		answer  time.Duration // how late the grant came
		handsOn bool
	}
	each(t, map[string]row{
		"as granted":                          {handsOn: true},
		"granted late, but with a third left": {answer: ttl * 62 / 100, handsOn: true},
		// Trust ends 92 ms before the TTL. When the grant comes, 0.5 ms more than a quarter is left.
		"granted so late that a quarter is left": {answer: ttl*3/4 - 92500*time.Microsecond},
	}, func(t *testing.T, s *service, c row) {
		l := s.locker(t, patient, unrenewed)
		if c.answer > 0 {
			s.Inject(slow(in(c.answer)))
		}
		first, q := mustAcquire(t, l), newQueue(t)
		s.Inject(nil)
		q.join(l, "a", 0)
		time.Sleep(time.Millisecond)
		mustRelease(t, first)
		a := q.lease("a")
		if released := s.Calls(drivertest.Release); released == 1 == c.handsOn ||
			a.Fence() == first.Fence()+1 != c.handsOn {
			t.Errorf("released %d times, token %d after %d", released, a.Fence(), first.Fence())
		}
		mustRelease(t, a)
	})
}

// The answer to the request that joined the queue is lost, so the waiter misses its handoff. It had a
// place without knowing.
func TestWaiter_L_unansweredPlace_reenters(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		here := s.twin()
		l := here.locker(t, patient)
		theirs := mustAcquire(t, s.twin().locker(t, patient))
		start := time.Now()
		here.Inject(func(c drivertest.Call) drivertest.Fault {
			switch {
			case c.Op == drivertest.Listen:
				return drivertest.Fault{Before: errBroken}
			case c.Op == drivertest.Acquire && c.N == 1:
				return drivertest.Fault{After: errBroken}
			case c.Op == drivertest.Acquire && c.N > 1 && time.Since(start) < 2600*time.Millisecond:
				return drivertest.Fault{Before: errBroken}
			}
			return drivertest.Fault{}
		})
		q := newQueue(t)
		q.join(l, "a", 0)
		if waiters := s.state(t).Waiters; waiters != 1 {
			t.Fatalf("%d are in the queue", waiters)
		}
		mustRelease(t, theirs)
		if s.state(t).Fence == 0 {
			t.Fatal("it was not handed the lock")
		}
		time.Sleep(2500 * time.Millisecond)
		if s.state(t).Held {
			t.Fatal("the handoff lasts too long for this test")
		}
		time.Sleep(400 * time.Millisecond)
		mustRelease(t, q.lease("a"))
	})
}

// The backend counts the contender of a process, and not the waiters behind it.
func TestBusyError_countsOtherWaiters(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		defer mustRelease(t, mustAcquire(t, s.twin().locker(t, patient)))
		l, q := s.locker(t, patient), newQueue(t)
		for _, name := range q.joinMany(l, 4, 0) {
			defer q.leave(name)
		}
		time.Sleep(10 * time.Second) // the contender has asked again
		q.leave("0")
		_, tried := l.TryAcquire(t.Context(), key)
		for _, err := range []error{tried, q.err("0")} {
			if n := wantBusy(t, err).Waiters; n != 3 {
				t.Errorf("%d waiting, want 3", n)
			}
		}
	})
}

// A waiter registers for notifications before it joins the queue, so it misses none.
func TestWaiter_L_handoffBeforeAnswer_isNotified(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.twin().locker(t, patient))
		mine := s.twin()
		answer := make(chan struct{})
		mine.Inject(nth(drivertest.Acquire, 1, drivertest.Fault{HoldAfter: answer})) // it joins the queue
		l := mine.locker(t, patient)
		q := newQueue(t)
		q.join(l, "a", 0)
		if waiters := s.state(t).Waiters; waiters != 1 {
			t.Fatalf("%d are in the queue", waiters)
		}
		mustRelease(t, holder)
		start := time.Now()
		close(answer)
		q.wg.Wait()
		wantTook(t, start, 0)
		mustRelease(t, q.lease("a"))
	})
}
