package distlock_test

import (
	"context"
	"slices"
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

// A leaving waiter leaves nothing behind at any place, and the others keep their order.
func TestQueue_leaver_othersKeepOrder(t *testing.T) {
	for _, who := range []string{"0", "1", "2", "3"} {
		for where, holder := range map[string]bool{"behind this process": true, "behind another": false} {
			t.Run(where+"/"+who, func(t *testing.T) {
				inService(t, func(t *testing.T, s *service) {
					l, other, q := s.twin().locker(t, patient), s.twin().locker(t, patient), newQueue(t)
					first := mustAcquire(t, map[bool]*distlock.Locker{true: l, false: other}[holder])
					names := q.joinMany(l, 4, 15*time.Millisecond)
					time.Sleep(time.Second)
					start := time.Now()
					q.leave(who)
					wantTook(t, start, 0)
					wantErr(t, q.err(who), context.Canceled)
					if busy := wantBusy(t, q.err(who)); busy.Held < time.Second || busy.Holder == "" {
						t.Errorf("%+v", busy)
					}
					mustRelease(t, first)
					q.wg.Wait()
					q.want(slices.DeleteFunc(names, func(name string) bool { return name == who })...)
					if state := s.state(t); state.Held || state.Waiters != 0 {
						t.Errorf("the service keeps %+v", state)
					}
				})
			})
		}
	}
}

// The process keeps its place in the backend's queue when its contender leaves.
func TestQueue_L_contenderLeaves_placeStays(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		here, there := s.twin().locker(t, patient), s.twin().locker(t, patient)
		first := mustAcquire(t, s.twin().locker(t, patient))
		q := newQueue(t)
		q.join(here, "here0", 15*time.Millisecond)
		q.join(here, "here1", 15*time.Millisecond)
		q.join(there, "there", 15*time.Millisecond)
		q.leave("here0")
		time.Sleep(time.Second)
		mustRelease(t, first)
		q.wg.Wait()
		q.want("here1", "there")
	})
}

// The place in the backend's queue ends at once. Else it would be handed the lock, and keep the lock from the
// other waiters for at least a second.
func TestQueue_L_leaver_noPlaceInBackend(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		holder := mustAcquire(t, s.twin().locker(t, patient))
		q := newQueue(t)
		q.join(s.twin().locker(t, patient), "leaves", 0)
		q.join(s.twin().locker(t, patient), "stays", 0)
		q.leave("leaves")
		if waiters := s.state(t).Waiters; waiters != 1 {
			t.Errorf("%d are in the queue", waiters)
		}
		start := time.Now()
		mustRelease(t, holder)
		mustRelease(t, q.lease("stays"))
		wantTook(t, start, 0)
	})
}

// A grant that meets a leaving waiter goes to the next waiter: no grant is lost, none is doubled.
func TestQueue_S1_leaverMeetsGrant(t *testing.T) {
	l := newService().locker(t, patient)
	var holders atomic.Int32
	for round := range 300 {
		first := mustAcquire(t, l)
		holders.Store(1)
		leaver, cancel := context.WithCancel(t.Context())
		stays := ctxFor(t, 5*time.Second) // L: the lock is not lost on its way
		acquire := func(ctx context.Context) func() error {
			return func() error {
				lease, err := l.Acquire(ctx, key)
				if err != nil {
					return err
				}
				if holders.Add(1) != 1 {
					t.Error("S1: the lock has two holders")
				}
				holders.Add(-1)
				return lease.Release(context.Background())
			}
		}
		left, stayed := async(acquire(leaver)), async(acquire(stays))
		if round%2 == 0 {
			time.Sleep(time.Duration(round) * time.Microsecond)
		}
		go cancel()
		holders.Add(-1)
		mustRelease(t, first)
		wantErr(t, <-stayed, nil)
		if err := <-left; err != nil {
			wantErr(t, err, context.Canceled)
		}
	}
}

func TestQueue_waitIsOver_namesHolder(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		mine := s.twin()
		l := mine.locker(t, withHolder("me"), withWait(time.Second))
		other := s.twin().locker(t, withHolder("another"))
		first := mustAcquire(t, l)
		mine.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(time.Hour)}))
		q := newQueue(t)
		q.join(l, "a", 0)
		q.join(l, "b", 0)
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			if busy := wantBusy(t, q.err(name)); busy.Holder != "me" || busy.Held != time.Second || busy.Self ||
				!busy.ThisProcess || !strings.Contains(q.err(name).Error(), "held by me (this process) for 1s") {
				t.Errorf("%s behind its own process: %v", name, busy)
			}
		}
		mine.Inject(nil)
		mustRelease(t, first)
		held := mustAcquire(t, other)
		time.Sleep(100 * time.Millisecond)
		names := q.joinMany(l, 5, 0)
		time.Sleep(time.Second)
		for _, name := range names {
			if busy := wantBusy(t, q.err(name)); busy.Holder != "another" || busy.Held < 1100*time.Millisecond ||
				busy.ThisProcess {
				t.Errorf("%s behind another process: %v", name, busy)
			}
		}
		mustRelease(t, held)
	})
}

// The contender of the process asks the backend, which does not know the process.
func TestAcquire_ownProcess_contenderSaysSo(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, withWait(time.Second))
		held := mustAcquire(t, l)
		time.Sleep(20 * time.Millisecond) // no handoff within the process
		_, waited := l.Acquire(t.Context(), key)
		_, once := l.TryAcquire(t.Context(), key)
		for _, err := range []error{waited, once} {
			if busy := wantBusy(t, err); !busy.ThisProcess || busy.Self {
				t.Errorf("%+v, want a BusyError of this process", busy)
			}
		}
		mustRelease(t, held)
	})
}

func TestQueue_close_endsAllWaits(t *testing.T) {
	each(t, map[string]bool{"behind this process": true, "behind another": false}, func(t *testing.T, s *service, own bool) {
		l, other, q := s.twin().locker(t, patient), s.twin().locker(t, patient), newQueue(t)
		mustAcquire(t, map[bool]*distlock.Locker{true: l, false: other}[own])
		names := q.joinMany(l, 5, time.Millisecond)
		time.Sleep(time.Second)
		start := time.Now()
		mustClose(t, l)
		q.wg.Wait()
		wantTook(t, start, 0)
		for _, name := range names {
			wantErr(t, q.err(name), distlock.ErrClosed)
		}
		q.want()
		if state := s.state(t); state.Held == own || state.Waiters != 0 {
			t.Errorf("the service keeps %+v", state)
		}
	})
}

// A reset connection fails the contender alone: the next waiter has the lock.
func TestQueue_L_oneFailure_nextWaiterTries(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		fails := make(chan struct{})
		s.Inject(nth(drivertest.Acquire, 0, drivertest.Fault{HoldBefore: fails, Before: errBroken}))
		q := newQueue(t)
		q.joinMany(s.locker(t, patient), 100, time.Millisecond)
		close(fails)
		q.wg.Wait()
		wantAll(t, q.err("0"), distlock.ErrUnavailable, errBroken)
		if n := len(q.granted()); n != 99 {
			t.Errorf("%d of 99 waiters had the lock; the first failed with %v", n, q.err("1"))
		}
	})
}

func TestQueue_C_failuresAreSharedByWaiters(t *testing.T) {
	fails := drivertest.Fault{Before: errBroken}
	type row struct {
		faults []drivertest.Fault // of the requests; the last one stays
		failed int                // of 5 callers
		asked  int                // until then
	}
	each(t, map[string]row{
		"two failures":         {faults: []drivertest.Fault{fails}, failed: 5, asked: 2},
		"a refusal":            {faults: []drivertest.Fault{{Before: errForbidden}}, failed: 5, asked: 1},
		"foreign data":         {faults: []drivertest.Fault{{Before: driver.ErrForeign}}, failed: 5, asked: 1},
		"a grant between them": {faults: []drivertest.Fault{fails, {}, fails, {}}, failed: 2},
	}, func(t *testing.T, s *service, c row) {
		begin := make(chan struct{})
		s.Inject(func(call drivertest.Call) (fault drivertest.Fault) {
			if call.Op == drivertest.Acquire {
				fault = c.faults[min(call.N, len(c.faults)-1)]
				fault.HoldBefore = begin
			}
			return fault
		})
		l, q := s.locker(t, patient), newQueue(t)
		q.joinMany(l, 5, time.Second)
		close(begin)
		q.wg.Wait()
		failed, asked := len(q.failed), s.Calls(drivertest.Acquire)
		if failed != c.failed || c.asked > 0 && asked != c.asked {
			t.Errorf("%d callers failed after %d requests, want %d after %d: %v", failed, asked, c.failed, c.asked, q.failed)
		}
		s.Inject(nil)
		mustRelease(t, mustAcquire(t, l)) // the queue is as new
	})
}

// A contender with a short TTL waits for its first answer for a shorter time than the other waiters may.
func TestQueue_C_shortSilence_isNotShared(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(3 * time.Second)}))
		l := s.locker(t, withTTL(30*time.Second), patient)
		var short sync.WaitGroup
		for range 3 {
			short.Go(func() {
				wantErr(t, second(l.Acquire(t.Context(), key, distlock.WithTTL(100*time.Millisecond))), distlock.ErrUnavailable)
			})
			synctest.Wait()
		}
		q := newQueue(t)
		q.join(l, "patient", 0)
		short.Wait()
		time.Sleep(3 * time.Second)
		mustRelease(t, q.lease("patient"))
	})
}

// Without a queue in the backend, the waiters of a process still keep their order. They do not poll for
// a lock that the process holds itself.
func TestQueue_L_backendWithoutQueue(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := open(t, mute{s.Faults}, patient)
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 50*time.Millisecond)
		q.join(l, "b", 50*time.Millisecond)
		time.Sleep(time.Second)
		s.wantCalls(t, drivertest.Acquire, 1)
		start := time.Now()
		mustRelease(t, first)
		q.wg.Wait()
		q.want("a", "b")
		wantTook(t, start, 100*time.Millisecond)
		s.wantCalls(t, drivertest.Acquire, 3) // no local handoff long after the grant
	})
}

// A release by its process wakes a polling contender, even during a request.
func TestQueue_L_release_wakesPollingContender(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := open(t, mute{s.Faults}, patient)
		other := s.twin().locker(t, patient)
		theirs := mustAcquire(t, other)
		q := newQueue(t)
		q.join(l, "a", 0)
		mustRelease(t, theirs)
		mine, err := l.TryAcquire(t.Context(), key) // sooner than the waiter
		must(t, err)
		start := time.Now()
		mustRelease(t, mine)
		mustRelease(t, q.lease("a"))
		wantTook(t, start, 0)
	})
}

// The next contender asks while the release is under way, unless waiters of other processes come first.
func TestQueue_L_release_overlapsNextRequest(t *testing.T) {
	each(t, map[string]bool{
		"no other process waits": false, "another process waits": true,
	}, func(t *testing.T, s *service, elsewhere bool) {
		mine := s.twin()
		l, other := mine.locker(t, patient), s.twin().locker(t, patient)
		blocker := mustAcquire(t, s.locker(t, patient))
		q := newQueue(t)
		q.join(l, "first", 0)
		if elsewhere {
			q.join(other, "elsewhere", time.Millisecond)
		}
		time.Sleep(time.Second)
		mustRelease(t, blocker)
		first := q.lease("first")
		q.join(l, "next", 0)
		if !elsewhere {
			must(t, first.Extend(t.Context(), time.Hour)) // so that there is no local handoff at all
		}
		asked, answer := mine.Calls(drivertest.Acquire), make(chan struct{})
		mine.Inject(on(drivertest.Release, drivertest.Fault{HoldBefore: answer}))
		released := async(func() error { return first.Release(t.Context()) })
		q.granted()
		if went := mine.Calls(drivertest.Acquire) > asked; went == elsewhere {
			t.Errorf("the next contender went to the service: %t", went)
		}
		close(answer)
		wantErr(t, <-released, nil)
		time.Sleep(10 * time.Millisecond)
		mustRelease(t, q.lease("next"))
	})
}
