package distlock_test

import (
	"context"
	"errors"
	"fmt"
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
					l := s.twin().locker(t, patient)
					other := s.twin().locker(t, patient)
					first := mustAcquire(t, map[bool]*distlock.Locker{true: l, false: other}[holder])
					q := newQueue(t)
					var want []string
					for i := range 4 {
						name := fmt.Sprint(i)
						q.join(l, name, 15*time.Millisecond)
						if name != who {
							want = append(want, name)
						}
					}
					time.Sleep(time.Second)
					start := time.Now()
					q.leave(who)
					var busy *distlock.BusyError
					if err := q.err(who); !errors.As(err, &busy) || !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
						t.Errorf("%v after %s, want busy and cancelled, at once", err, time.Since(start))
					} else if busy.Held < time.Second || busy.Holder == "" {
						t.Errorf("%+v", busy)
					}
					mustRelease(t, first)
					q.wg.Wait()
					q.want(want...)
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
		if took := time.Since(start); took > 0 {
			t.Errorf("the lock lay idle for %s", took)
		}
	})
}

// A grant that meets a leaving waiter goes to the next waiter: no grant is lost, none is doubled.
func TestQueue_S1_leaverMeetsGrant(t *testing.T) {
	s := newService()
	l := s.locker(t, patient)
	var holders atomic.Int32
	for round := range 300 {
		first := mustAcquire(t, l)
		holders.Store(1)
		results := make(chan *distlock.Lease, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				lease, err := l.Acquire(ctx, key)
				switch {
				case err == nil && holders.Add(1) != 1:
					t.Error("S1: the lock has two holders")
				case err != nil && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				results <- lease
			}()
		}
		if round%2 == 0 {
			time.Sleep(time.Duration(round) * time.Microsecond)
		}
		go cancel()
		holders.Add(-1)
		mustRelease(t, first)
		granted := 0
		for range 2 {
			select {
			case lease := <-results:
				if lease != nil {
					granted++
					holders.Add(-1)
					mustRelease(t, lease)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("L: the lock was lost on its way")
			}
		}
		if granted == 0 {
			t.Fatal("no call was granted the lock")
		}
	}
}

func TestQueue_waitIsOver_namesHolder(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.twin().locker(t, distlock.Options{Holder: "me", Wait: time.Second})
		other := s.twin().locker(t, distlock.Options{Holder: "another"})
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		q.join(l, "b", 0)
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			var busy *distlock.BusyError
			if err := q.err(name); !errors.As(err, &busy) || busy.Holder != "me" || busy.Held != time.Second ||
				busy.Self || !busy.ThisProcess || !strings.Contains(err.Error(), "held by me (this process) for 1s") {
				t.Errorf("%s behind its own process: %v", name, err)
			}
		}
		mustRelease(t, first)
		held := mustAcquire(t, other)
		time.Sleep(100 * time.Millisecond)
		for i := range 5 {
			q.join(l, fmt.Sprint(i), 0)
		}
		time.Sleep(time.Second)
		for i := range 5 {
			var busy *distlock.BusyError
			if err := q.err(fmt.Sprint(i)); !errors.As(err, &busy) || busy.Holder != "another" ||
				busy.Held < 1100*time.Millisecond || busy.ThisProcess {
				t.Errorf("%d behind another process: %v", i, err)
			}
		}
		mustRelease(t, held)
	})
}

// The contender of the process asks the backend, which does not know the process.
func TestAcquire_ownProcess_contenderSaysSo(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, distlock.Options{Wait: time.Second})
		held := mustAcquire(t, l)
		time.Sleep(20 * time.Millisecond) // no handoff within the process
		_, waited := l.Acquire(t.Context(), key)
		_, once := l.TryAcquire(t.Context(), key)
		for _, err := range []error{waited, once} {
			if busy := (*distlock.BusyError)(nil); !errors.As(err, &busy) || !busy.ThisProcess || busy.Self {
				t.Errorf("%v, want a BusyError of this process", err)
			}
		}
		mustRelease(t, held)
	})
}

func TestQueue_close_endsAllWaits(t *testing.T) {
	for where, own := range map[string]bool{"behind this process": true, "behind another": false} {
		t.Run(where, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l, other := s.twin().locker(t, patient), s.twin().locker(t, patient)
				mustAcquire(t, map[bool]*distlock.Locker{true: l, false: other}[own])
				q := newQueue(t)
				for i := range 5 {
					q.join(l, fmt.Sprint(i), time.Millisecond)
				}
				time.Sleep(time.Second)
				start := time.Now()
				mustClose(t, l)
				q.wg.Wait()
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %s", took)
				}
				for i := range 5 {
					if err := q.err(fmt.Sprint(i)); !errors.Is(err, distlock.ErrClosed) {
						t.Errorf("%d: %v", i, err)
					}
				}
				q.want()
				if state := s.state(t); state.Held == own || state.Waiters != 0 {
					t.Errorf("the service keeps %+v", state)
				}
			})
		})
	}
}

// A reset connection fails the contender alone: the next waiter has the lock.
func TestQueue_L_oneFailure_nextWaiterTries(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		fails := make(chan struct{})
		s.Inject(nth(drivertest.Acquire, 0, drivertest.Fault{HoldBefore: fails, Before: errBroken}))
		l := s.locker(t, patient)
		q := newQueue(t)
		for i := range 100 {
			q.join(l, fmt.Sprint(i), time.Millisecond)
		}
		close(fails)
		q.wg.Wait()
		if err := q.err("0"); !errors.Is(err, distlock.ErrUnavailable) || !errors.Is(err, errBroken) {
			t.Errorf("the contender: %v", err)
		}
		if n := len(q.granted()); n != 99 {
			t.Errorf("%d of 99 waiters had the lock; the first failed with %v", n, q.err("1"))
		}
	})
}

func TestQueue_C_failuresAreSharedByWaiters(t *testing.T) {
	fails := drivertest.Fault{Before: errBroken}
	for name, c := range map[string]struct {
		faults []drivertest.Fault // of the requests; the last one stays
		failed int                // of 5 callers
		asked  int                // until then
	}{
		"two failures":         {faults: []drivertest.Fault{fails}, failed: 5, asked: 2},
		"a refusal":            {faults: []drivertest.Fault{{Before: errForbidden}}, failed: 5, asked: 1},
		"foreign data":         {faults: []drivertest.Fault{{Before: driver.ErrForeign}}, failed: 5, asked: 1},
		"a grant between them": {faults: []drivertest.Fault{fails, {}, fails, {}}, failed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				begin := make(chan struct{})
				s.Inject(func(call drivertest.Call) (fault drivertest.Fault) {
					if call.Op == drivertest.Acquire {
						fault = c.faults[min(call.N, len(c.faults)-1)]
						fault.HoldBefore = begin
					}
					return fault
				})
				l := s.locker(t, patient)
				q := newQueue(t)
				for i := range 5 {
					q.join(l, fmt.Sprint(i), time.Second)
				}
				close(begin)
				q.wg.Wait()
				failed := 0
				for i := range 5 {
					if q.err(fmt.Sprint(i)) != nil {
						failed++
					}
				}
				asked := s.Calls(drivertest.Acquire)
				if failed != c.failed || c.asked > 0 && asked != c.asked {
					t.Errorf("%d callers failed after %d requests, want %d after %d: %v", failed, asked, c.failed, c.asked, q.failed)
				}
				s.Inject(nil)
				mustRelease(t, mustAcquire(t, l)) // the queue is as new
			})
		})
	}
}

// A contender with a short TTL waits for its first answer for a shorter time than the other waiters may.
func TestQueue_C_shortSilence_isNotShared(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		s.Inject(on(drivertest.Acquire, drivertest.Fault{HoldBefore: in(3 * time.Second)}))
		l := s.locker(t, distlock.Options{TTL: 30 * time.Second, Wait: -1})
		var short sync.WaitGroup
		for range 3 {
			short.Go(func() {
				_, err := l.Acquire(t.Context(), key, distlock.WithTTL(100*time.Millisecond))
				if !errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("a waiter with a short TTL: %v", err)
				}
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

// After a loss the next contender asks the backend at once.
func TestQueue_L_leaseLost_contenderAsks(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := s.locker(t, patient)
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 0)
		s.steal(t)
		if err := first.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
			t.Fatal(err)
		}
		a := q.lease("a")
		if a.Fence() <= first.Fence() {
			t.Errorf("S2: fence %d after %d", a.Fence(), first.Fence())
		}
		mustRelease(t, a)
	})
}

// mute is a backend without a queue.
type mute struct{ driver.Driver }

func (m mute) Capabilities() driver.Capabilities {
	c := m.Driver.Capabilities()
	c.Queues = false
	return c
}

// Without a queue in the backend, the waiters of a process still keep their order. They do not poll for
// a lock that the process holds itself.
func TestQueue_L_backendWithoutQueue(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := open(t, mute{s.Faults}, distlock.Options{Wait: -1, TTL: ttl})
		first := mustAcquire(t, l)
		q := newQueue(t)
		q.join(l, "a", 50*time.Millisecond)
		q.join(l, "b", 50*time.Millisecond)
		time.Sleep(time.Second)
		if calls := s.Calls(drivertest.Acquire); calls != 1 {
			t.Errorf("the service was asked %d times", calls)
		}
		start := time.Now()
		mustRelease(t, first)
		q.wg.Wait()
		q.want("a", "b")
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("it took %s: the lock lay idle", took)
		}
		if calls := s.Calls(drivertest.Acquire); calls != 3 {
			t.Errorf("the service was asked %d times: there was a local handoff long after the grant", calls)
		}
	})
}

// A release by its process wakes a polling contender, even during a request.
func TestQueue_L_release_wakesPollingContender(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		l := open(t, mute{s.Faults}, distlock.Options{Wait: -1, TTL: ttl})
		other := s.twin().locker(t, patient)
		theirs := mustAcquire(t, other)
		q := newQueue(t)
		q.join(l, "a", 0)
		mustRelease(t, theirs)
		mine, err := l.TryAcquire(t.Context(), key) // sooner than the waiter
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		mustRelease(t, mine)
		mustRelease(t, q.lease("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("it had the lock %s later", took)
		}
	})
}

// The next contender asks while the release is under way, unless waiters of other processes come first.
func TestQueue_L_release_overlapsNextRequest(t *testing.T) {
	for name, elsewhere := range map[string]bool{"no other process waits": false, "another process waits": true} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
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
					if err := first.Extend(t.Context(), time.Hour); err != nil { // so that there is no local handoff at all
						t.Fatal(err)
					}
				}
				asked, answer := mine.Calls(drivertest.Acquire), make(chan struct{})
				mine.Inject(on(drivertest.Release, drivertest.Fault{HoldBefore: answer}))
				released := make(chan error, 1)
				go func() { released <- first.Release(t.Context()) }()
				q.granted()
				if went := mine.Calls(drivertest.Acquire) > asked; went == elsewhere {
					t.Errorf("the next contender went to the service: %t", went)
				}
				close(answer)
				if err := <-released; err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
				mustRelease(t, q.lease("next"))
			})
		})
	}
}
