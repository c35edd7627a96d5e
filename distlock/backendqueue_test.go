package distlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// scripted is a backend with a queue, and with the answers of the test. At first the lock is held.
type scripted struct {
	*distlock.Script
	t      *testing.T
	wakes  chan driver.Wake
	silent bool // no notifications
}

// inScript runs the test on fake time, with a backend of its own.
func inScript(t *testing.T, test func(t *testing.T, s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{t: t, silent: true, Script: &distlock.Script{
			Caps: &driver.Capabilities{Backend: "script", Queues: true},
			OnExtend: func(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
				return distlock.Replies(reqs, driver.ExtendReply{Err: errSilence})
			},
		}}
		s.set(busy)
		s.setListen(nil)
		test(t, s)
	})
}

func (s *scripted) set(answer func(driver.AcquireRequest) driver.AcquireReply) {
	s.Change(func() {
		s.OnAcquire = func(_ context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
			return answer(req), nil
		}
	})
}

// setListen ends all notifications, and has further calls of Listen fail as fails does.
func (s *scripted) setListen(fails func(context.Context) error) {
	s.Change(func() {
		if !s.silent {
			close(s.wakes)
		}
		wakes := make(chan driver.Wake, 1)
		s.wakes, s.silent = wakes, fails != nil
		s.OnListen = func(ctx context.Context) (<-chan driver.Wake, func(), error) {
			if fails != nil {
				if err := fails(ctx); err != nil {
					return nil, nil, err
				}
			}
			return wakes, func() {}, nil
		}
	})
}

// losesAll makes the backend one that has no lease any more.
func (s *scripted) losesAll() {
	s.OnExtend = func(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
		return distlock.Replies(reqs, driver.ExtendReply{})
	}
}

// requests are those that the service was sent so far.
func (s *scripted) requests() []driver.AcquireRequest {
	synctest.Wait()
	asked, _ := s.Asked()
	return asked
}

func (s *scripted) times() []time.Time {
	synctest.Wait()
	_, at := s.Asked()
	return at
}

// wantClaims fails the test unless leases were extended so often.
func (s *scripted) wantClaims(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	if n := s.Extended(); n != want {
		t.Errorf("%d extends, want %d", n, want)
	}
}

func busy(req driver.AcquireRequest) driver.AcquireReply {
	reply := driver.AcquireReply{Outcome: driver.Busy,
		State: driver.State{Held: true, Holder: "another", TTL: time.Hour, Waiters: 1}}
	if req.Alive > 0 {
		reply.Ticket = 7
	}
	return reply
}

func grants(driver.AcquireRequest) driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: 100, FenceEnd: 20_100}
}

// handoffWake is a wake after the request seq, with a grant that lasts for ttl.
func handoffWake(seq int64, ttl time.Duration) driver.Wake {
	return driver.Wake{Grant: grants(driver.AcquireRequest{}), Seq: seq, TTL: ttl}
}

// queued has one call wait in the queue of s. It returns its lease, and its error after it has left.
func (s *scripted) queued(with ...option) (lease func() *distlock.Lease, failure func() error) {
	s.t.Helper()
	q := newQueue(s.t)
	q.join(open(s.t, s, append([]option{withTTL(30 * time.Second), patient}, with...)...), "waiter", 0)
	if asked := s.requests(); !s.silent && asked[len(asked)-1].Alive == 0 {
		s.t.Fatalf("it has no place in the queue: %+v", asked)
	}
	return func() *distlock.Lease { return q.lease("waiter") },
		func() error { q.leave("waiter"); return q.err("waiter") }
}

// A handoff lasts from some moment after the request that it names, so trust counts from that request.
func TestWaiter_N_trustCountsFromItsRequest(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		lease, _ := s.queued()
		seq := s.requests()[1].Seq
		time.Sleep(time.Second)
		s.wakes <- handoffWake(seq, 4*time.Second)
		le := lease()
		if asked := len(s.requests()); asked != 2 {
			t.Errorf("it asked %d times", asked)
		}
		<-le.Context().Done()
		wantTook(t, s.times()[1], 4*time.Second-4*time.Second/100-2*time.Millisecond-4*time.Second/50)
		if s.Extended() == 0 {
			t.Error("it was never claimed")
		}
	})
}

// Without a known request of its own before the handoff, the waiter asks first.
func TestWaiter_N_untrustedHandoff_asksFirst(t *testing.T) {
	grant := grants(driver.AcquireRequest{})
	for name, c := range map[string]struct {
		behind int64
		ttl    time.Duration
		off    bool // no renewal
		wake   *driver.Wake
		begins bool
	}{
		"after the last request":               {ttl: 10 * time.Second, begins: true},
		"after the one before":                 {ttl: 10 * time.Second, behind: 1, begins: true},
		"after an older one":                   {ttl: 10 * time.Second, behind: 2},
		"after one that is still to come":      {ttl: 10 * time.Second, behind: -1},
		"too little left":                      {ttl: 1200 * time.Millisecond},
		"nothing left":                         {ttl: time.Millisecond},
		"a lease that will not be renewed":     {ttl: 10 * time.Second, off: true},
		"an interruption, no handoff":          {wake: &driver.Wake{}},
		"a handoff that names no request":      {wake: &driver.Wake{Grant: grant, TTL: time.Hour}},
		"a handoff that names a senseless one": {wake: &driver.Wake{Grant: grant, TTL: time.Hour, Seq: -1 << 63}},
		"a handoff that names a large one":     {wake: &driver.Wake{Grant: grant, TTL: time.Hour, Seq: 1<<63 - 1}},
		"a handoff that took all its time":     {ttl: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inScript(t, func(t *testing.T, s *scripted) {
				var with []option
				if c.off {
					with = append(with, unrenewed)
				}
				lease, _ := s.queued(with...)
				time.Sleep(9 * time.Second) // it has asked some more
				for n := len(s.requests()); len(s.requests()) == n; {
					time.Sleep(10 * time.Millisecond) // until it has just asked
				}
				s.wakes <- driver.Wake{} // so that it asks once more
				_ = s.requests()
				time.Sleep(time.Second)
				asked := s.requests()
				s.set(grants)
				wake := handoffWake(asked[len(asked)-1].Seq-c.behind, c.ttl)
				if c.wake != nil {
					wake = *c.wake
				}
				s.wakes <- wake
				le := lease()
				if more := len(s.requests()) - len(asked); more > 1 || more == 0 != c.begins {
					t.Errorf("it asked %d times before it began", more)
				}
				mustRelease(t, le)
			})
		})
	}
}

// A handoff that is not used gives no lock: the wait that goes on and fails has none.
func TestObserver_unusedHandoff_isNotReported(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		seen := &recorder{t: t}
		_, failure := s.queued(seenBy(seen))
		s.wakes <- handoffWake(s.requests()[1].Seq, time.Millisecond)
		_ = s.requests()
		if err := failure(); !errors.Is(err, distlock.ErrNotAcquired) || seen.ended[0].Handoff != "" {
			t.Errorf("Acquire: %v, with the handoff %q", err, seen.ended[0].Handoff)
		}
	})
}

// Work that is done soon needs no claim; work that takes longer is claimed once, and renewed like any other.
func TestWaiter_longWork_isClaimed(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.OnExtend = nil
		lease, _ := s.queued()
		s.wakes <- handoffWake(s.requests()[1].Seq, 5*time.Second)
		le := lease()
		time.Sleep(time.Second)
		s.wantClaims(t, 0)
		time.Sleep(time.Second)
		s.wantClaims(t, 1)
		time.Sleep(20 * time.Second)
		s.wantClaims(t, 3)
		wantErr(t, le.Err(), nil)
		mustRelease(t, le)
	})
}

// A waiter never rests on notifications, and keeps its promises.
func TestWaiter_L_asksBeforeItsPlaceEnds(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		_, failure := s.queued()
		time.Sleep(10 * time.Minute)
		asked := s.requests()
		if len(asked) < 100 || len(asked) > 200 {
			t.Errorf("it asked %d times in 10 minutes", len(asked))
		}
		at := s.times()
		for i, req := range asked[1:] {
			if i+2 < len(asked) {
				next := at[i+2].Sub(at[i+1])
				if next < 3*time.Second || next > 5*time.Second || req.Alive != next+time.Second {
					t.Fatalf("request %d promises to ask within %s, and does after %s", i, req.Alive, next)
				}
			}
			if req.Owner != asked[0].Owner || i > 0 && (req.Seq != asked[i].Seq+1 || req.Ticket != 7) {
				t.Fatalf("request %d: %+v after %+v", i, req, asked[i])
			}
		}
		wantAll(t, failure(), context.Canceled, distlock.ErrNotAcquired)
		gone := s.Released()
		if len(gone) != 1 || !gone[0].Leave || gone[0].Tombstone != 0 || gone[0].Owner != asked[0].Owner {
			t.Errorf("it left with %+v", gone)
		}
	})
}

// With a short TTL no place is kept for longer than that.
func TestWaiter_L_placeNeverOutlivesATTL(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		l := open(t, s, withTTL(500*time.Millisecond), withWait(10*time.Second))
		_, _ = l.Acquire(t.Context(), key)
		at := s.times()
		for i, req := range s.requests()[1:] {
			if req.Alive > 450*time.Millisecond || i > 0 && at[i+1].Sub(at[i]) > req.Alive*3/4 {
				t.Fatalf("request %d, %s after the one before, promises %s", i, at[i+1].Sub(at[i]), req.Alive)
			}
		}
	})
}

// No notification says that the holder's TTL is over.
func TestWaiter_L_holdersTTLOver_asks(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.set(func(req driver.AcquireRequest) driver.AcquireReply {
			if asked, _ := s.Asked(); len(asked) > 2 {
				return grants(req)
			}
			return driver.AcquireReply{State: driver.State{Held: true, TTL: 700 * time.Millisecond}, Ticket: 1}
		})
		lease, _ := s.queued()
		start := time.Now()
		time.Sleep(time.Second)
		if took := s.times()[2].Sub(start); took != 701*time.Millisecond {
			t.Errorf("it asked after %s", took)
		}
		mustRelease(t, lease())
	})
}

// After a handoff that was claimed too late, the waiter reenters at its old place under another owner.
func TestWaiter_L_lateClaim_keepsItsPlace(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		lease, _ := s.queued()
		before := s.requests()[0].Owner
		s.set(func(req driver.AcquireRequest) driver.AcquireReply {
			if req.Owner == before {
				return driver.AcquireReply{Outcome: driver.Cancelled}
			}
			return driver.AcquireReply{State: driver.State{Held: true, TTL: time.Hour}, Ticket: req.Ticket}
		})
		s.wakes <- driver.Wake{}
		asked := s.requests()
		last := asked[len(asked)-1]
		if last.Owner == before || last.Ticket != 7 || last.Alive == 0 || last.Seq != 1 {
			t.Errorf("it entered with %+v", last)
		}
		s.set(grants)
		s.wakes <- driver.Wake{}
		mustRelease(t, lease())
	})
}

func TestWaiter_fullQueue_failsAtOnce(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.set(func(req driver.AcquireRequest) driver.AcquireReply {
			reply := busy(req)
			if reply.Ticket, reply.State.Waiters = 0, 1000; req.Alive > 0 {
				reply.Outcome = driver.Full
			}
			return reply
		})
		_, failure := s.queued()
		err := failure()
		if wantBusy(t, err).Waiters != 1000 || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "try again later") {
			t.Errorf("%v", err)
		}
	})
}

// Without notifications, waiters poll from their places in the queue, and the log has one warning.
func TestWaiter_L_noNotifications_polls(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.setListen(func(context.Context) error { return errors.New("NOPERM no channel") })
		logger, log := logged()
		lease, _ := s.queued(logTo(logger))
		time.Sleep(10 * time.Second)
		asked := s.requests()
		if len(asked) < 50 || len(asked) > 300 {
			t.Errorf("it asked %d times in 10 s", len(asked))
		}
		for _, req := range asked[1:] {
			if req.Alive < time.Second || req.Seq == 0 {
				t.Fatalf("it has no place in the queue: %+v", req)
			}
		}
		s.set(grants)
		time.Sleep(time.Second)
		mustRelease(t, lease())
		log.want(t, "level=WARN", 1)
		log.want(t, "NOPERM", 1)
		log.want(t, "check the right to subscribe", 1)
		log.want(t, key, 0)
	})
}

// Long pauses between attempts cost a waiter no place.
func TestWaiter_L_longPauses_keepsItsPlace(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.setListen(func(context.Context) error { return errors.ErrUnsupported })
		s.queued(withTTL(200 * time.Millisecond))
		time.Sleep(time.Minute)
		asked := s.requests()
		if len(asked) < 10 {
			t.Errorf("it asked %d times in a minute", len(asked))
		}
		at := s.times()
		for i := 2; i < len(asked); i++ {
			if pause := at[i].Sub(at[i-1]); pause >= asked[i-1].Alive {
				t.Errorf("request %d came after %s, and the place ended after %s", i, pause, asked[i-1].Alive)
			}
		}
	})
}

// A restart of the backend, or a right that an operator grants late, costs notifications for a while only.
func TestWaiter_L_notificationsLost_listensAgain(t *testing.T) {
	for name, listen := range map[string]func(context.Context) error{
		"refused": func(context.Context) error { return errSilence },
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inScript(t, func(t *testing.T, s *scripted) {
				lease, _ := s.queued()
				s.setListen(listen)
				time.Sleep(time.Minute)
				asked := s.requests()
				if n := len(asked); n < 200 {
					t.Errorf("without notifications it asked %d times in a minute", n)
				}
				at := s.times()
				for i, req := range asked[2:] {
					if took := at[i+2].Sub(at[i+1]); took > asked[i+1].Alive-time.Second {
						t.Fatalf("request %d, %s after the one before, for a place of %s", req.Seq, took, asked[i+1].Alive)
					}
				}
				s.setListen(nil)
				time.Sleep(6 * time.Second)
				before := len(s.requests())
				time.Sleep(time.Minute)
				asked = s.requests()
				if n := len(asked) - before; n > 20 {
					t.Errorf("after it could listen again, it asked %d times in a minute", n)
				}
				for last := len(asked); len(asked) == last; asked = s.requests() {
					time.Sleep(100 * time.Millisecond) // after a new request, a handoff lasts long enough
				}
				s.wakes <- handoffWake(asked[len(asked)-1].Seq, 10*time.Second)
				mustRelease(t, lease())
			})
		})
	}
}

func TestWaiter_L_handoffBeforeListen_asksAtOnce(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		lease, _ := s.queued()
		s.setListen(func(context.Context) error { return errSilence })
		time.Sleep(10 * time.Second)
		var at time.Time
		s.setListen(func(context.Context) error { at = time.Now(); s.set(grants); return nil })
		time.Sleep(10 * time.Second)
		if asked := s.requests(); !s.times()[len(asked)-1].Equal(at) {
			t.Errorf("it asked %s after it could listen", s.times()[len(asked)-1].Sub(at))
		}
		mustRelease(t, lease())
	})
}

// The warning comes once, so it must not be spent on a waiter that left before the answer.
func TestWaiter_noNotifications_warnsTheSecond(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		s.setListen(func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return errors.New("NOPERM no channel")
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		logger, log := logged()
		l, q := open(t, s, withTTL(30*time.Second), patient, logTo(logger)), newQueue(t)
		q.join(l, "first", 0)
		time.Sleep(500 * time.Millisecond)
		q.leave("first")
		log.want(t, "level=WARN", 0)
		q.join(l, "second", 0)
		time.Sleep(2 * time.Second)
		q.leave("second")
		log.want(t, "level=WARN", 1)
		log.want(t, "NOPERM", 1)
	})
}

// held has a lease, and a waiter of the same process in the queue of the backend.
func (s *scripted) held(with ...option) (*distlock.Lease, *queue) {
	s.t.Helper()
	s.set(grants)
	l, q := open(s.t, s, append(with, withTTL(30*time.Second), patient)...), newQueue(s.t)
	lease := mustAcquire(s.t, l)
	s.set(busy)
	q.join(l, "a", 0)
	time.Sleep(time.Second)
	if asked := s.requests(); len(asked) != 2 || asked[1].Alive == 0 {
		s.t.Fatalf("it does not stand in the queue of the backend: %+v", asked)
	}
	return lease, q
}

// The backend notifies its waiters of a release. It may know nothing of a loss.
func TestQueue_L_loss_wakesNotifiedContender(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		first, q := s.held()
		s.losesAll()
		s.set(grants)
		start := time.Now()
		wantErr(t, first.Extend(t.Context(), time.Minute), distlock.ErrLost)
		mustRelease(t, q.lease("a"))
		wantTook(t, start, 0)
	})
}

// Then a release by its own process wakes the contender, too.
func TestQueue_L_notificationsEnd_releaseWakes(t *testing.T) {
	inScript(t, func(t *testing.T, s *scripted) {
		first, q := s.held(unrenewed)
		close(s.wakes)
		time.Sleep(time.Second)
		s.set(grants)
		start := time.Now()
		mustRelease(t, first)
		mustRelease(t, q.lease("a"))
		wantTook(t, start, 0)
	})
}

// A copy of the acquire may still arrive, and would be granted the lock again.
func TestLease_L_sentTwiceThenLost_tombstone(t *testing.T) {
	for name, replayed := range map[string]bool{"sent twice": true, "sent once": false} {
		t.Run(name, func(t *testing.T) {
			inScript(t, func(t *testing.T, s *scripted) {
				s.losesAll()
				s.set(func(req driver.AcquireRequest) driver.AcquireReply {
					reply := grants(req)
					reply.Replayed = replayed
					return reply
				})
				lease := mustAcquire(t, open(t, s))
				wantErr(t, lease.Extend(t.Context(), ttl), distlock.ErrLost)
				time.Sleep(time.Second) // the work keeps its margin
				marks := slices.DeleteFunc(s.Released(), func(req driver.ReleaseRequest) bool {
					return req.Owner != s.Granted().Owner || req.Tombstone != 2*time.Minute
				})
				if len(marks) > 1 || len(marks) == 1 != replayed {
					t.Errorf("marked as cancelled %d times: %+v", len(marks), s.Released())
				}
			})
		})
	}
}
