package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

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

// forgetful is a backend that has lost all leases.
type forgetful struct{ *scripted }

func (f forgetful) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	return make([]driver.ExtendReply, len(reqs))
}

// The backend notifies its waiters of a release. It may know nothing of a loss.
func TestQueue_L_loss_wakesNotifiedContender(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.answer = grants
		l := open(t, forgetful{s}, distlock.Options{TTL: 30 * time.Second, Wait: -1})
		first := mustAcquire(t, l)
		s.set(nil)
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(time.Second)
		if asked := s.requests(); len(asked) != 2 || asked[1].Alive == 0 {
			t.Fatalf("it does not stand in the queue of the backend: %+v", asked)
		}
		s.set(grants)
		start := time.Now()
		if err := first.Extend(t.Context(), time.Minute); !errors.Is(err, distlock.ErrLost) {
			t.Fatal(err)
		}
		mustRelease(t, q.lease("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("it had the lock %s later", took)
		}
	})
}

// A lease near its end would leave less to the next holder than a new grant.
func TestHandoff_shortLease_isReleased(t *testing.T) {
	for name, c := range map[string]struct {
		answer  time.Duration // how late the grant came
		handsOn bool
	}{
		"as granted":                          {handsOn: true},
		"granted late, but with a third left": {answer: ttl * 62 / 100, handsOn: true},
		// Trust ends 92 ms before the TTL. When the grant comes, 0.5 ms more than a quarter is left.
		"granted so late that a quarter is left": {answer: ttl*3/4 - 92500*time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			inService(t, func(t *testing.T, s *service) {
				l := s.locker(t, distlock.Options{Wait: -1, RenewEvery: -1})
				if c.answer > 0 {
					s.Inject(func(drivertest.Call) drivertest.Fault {
						return drivertest.Fault{HoldAfter: in(c.answer)}
					})
				}
				first := mustAcquire(t, l)
				s.Inject(nil)
				q := newQueue(t)
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
		})
	}
}

// slowEar is a backend that answers late that it cannot notify.
type slowEar struct{ *scripted }

func (s slowEar) Listen(ctx context.Context, _ driver.Name, _ string) (<-chan driver.Wake, func(), error) {
	select {
	case <-time.After(time.Second):
		return nil, nil, errors.New("NOPERM no channel")
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// The warning comes once, so it must not be spent on a waiter that left before the answer.
func TestWaiter_noNotifications_warnsTheSecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		l := open(t, slowEar{newScripted(t)}, distlock.Options{TTL: 30 * time.Second, Wait: -1,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		q := newQueue(t)
		q.join(l, "first", 0)
		time.Sleep(500 * time.Millisecond)
		q.leave("first")
		if log.Len() > 0 {
			t.Errorf("the log warns for a waiter that has left: %s", log.String())
		}
		q.join(l, "second", 0)
		time.Sleep(2 * time.Second)
		q.leave("second")
		if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "NOPERM") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// Then a release by its own process wakes the contender, too.
func TestQueue_L_notificationsEnd_releaseWakes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.answer = grants
		l := open(t, s, distlock.Options{TTL: 30 * time.Second, Wait: -1, RenewEvery: -1})
		first := mustAcquire(t, l)
		s.set(nil)
		q := newQueue(t)
		q.join(l, "a", 0)
		time.Sleep(time.Second)
		close(s.wakes)
		time.Sleep(time.Second)
		s.set(grants)
		start := time.Now()
		mustRelease(t, first)
		mustRelease(t, q.lease("a"))
		if took := time.Since(start); took != 0 {
			t.Errorf("it had the lock %s later", took)
		}
	})
}

// A copy of the acquire may still arrive, and would be granted the lock again.
func TestLease_L_sentTwiceThenLost_tombstone(t *testing.T) {
	for name, replayed := range map[string]bool{"sent twice": true, "sent once": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newScripted(t)
				s.answer = func(req driver.AcquireRequest) driver.AcquireReply {
					reply := grants(req)
					reply.Replayed = replayed
					return reply
				}
				l := open(t, forgetful{s}, distlock.Options{TTL: ttl})
				lease := mustAcquire(t, l)
				owner := s.requests()[0].Owner
				if err := lease.Extend(t.Context(), ttl); !errors.Is(err, distlock.ErrLost) {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // the work keeps its margin
				s.mu.Lock()
				defer s.mu.Unlock()
				tombstones := 0
				for _, req := range s.gone {
					if req.Owner == owner && req.Tombstone == 2*time.Minute {
						tombstones++
					}
				}
				if want := map[bool]int{true: 1, false: 0}[replayed]; tombstones != want {
					t.Errorf("marked as cancelled %d times, want %d: %+v", tombstones, want, s.gone)
				}
			})
		})
	}
}

// The backend counts the contender of a process, and not the waiters behind it.
func TestBusyError_countsOtherWaiters(t *testing.T) {
	inService(t, func(t *testing.T, s *service) {
		defer mustRelease(t, mustAcquire(t, s.twin().locker(t, patient)))
		l := s.locker(t, patient)
		q := newQueue(t)
		for i := range 4 {
			q.join(l, fmt.Sprint(i), 0)
			defer q.leave(fmt.Sprint(i))
		}
		time.Sleep(10 * time.Second) // the contender has asked again
		q.leave("0")
		_, tried := l.TryAcquire(t.Context(), key)
		for err, want := range map[error]int{tried: 3, q.err("0"): 3} {
			var busy *distlock.BusyError
			if !errors.As(err, &busy) || busy.Waiters != want {
				t.Errorf("%v, want %d waiting", err, want)
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
		if took := time.Since(start); took > 0 {
			t.Errorf("it found out after %s", took)
		}
		mustRelease(t, q.lease("a"))
	})
}
