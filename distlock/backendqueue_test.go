package distlock_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// scripted is a backend with the answers of the test. Without an answer the lock is held.
type scripted struct {
	t     *testing.T
	mu    sync.Mutex
	asked []driver.AcquireRequest
	at    []time.Time
	gone  []driver.ReleaseRequest
	ended int // extends
	wakes chan driver.Wake

	answer  func(driver.AcquireRequest) driver.AcquireReply // nil: busy
	hold    func(driver.AcquireRequest)
	listen  func(context.Context) error // nil: the backend notifies
	extends error
}

func newScripted(t *testing.T) *scripted {
	return &scripted{t: t, wakes: make(chan driver.Wake, 1), extends: errSilence}
}

func (s *scripted) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "script", Queues: true}
}

func (s *scripted) Acquire(_ context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	s.mu.Lock()
	s.asked, s.at = append(s.asked, req), append(s.at, time.Now())
	answer, hold := s.answer, s.hold
	s.mu.Unlock()
	if hold != nil {
		hold(req)
	}
	if answer != nil {
		return answer(req), nil
	}
	reply := driver.AcquireReply{Outcome: driver.Busy, State: driver.State{Held: true, Holder: "another",
		TTL: time.Hour, Waiters: 1}}
	if req.Alive > 0 {
		reply.Ticket = 7
	}
	return reply, nil
}

func (s *scripted) Raise(context.Context, driver.RaiseRequest) (driver.RaiseReply, error) {
	return driver.RaiseReply{}, errSilence
}

func (s *scripted) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended += len(reqs)
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i] = driver.ExtendReply{Held: s.extends == nil, Err: s.extends}
	}
	return replies
}

func (s *scripted) Release(_ context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, req)
	return driver.ReleaseReply{Released: true}, nil
}

func (s *scripted) Inspect(context.Context, driver.Name) (driver.State, error) {
	return driver.State{}, nil
}
func (s *scripted) Close() error { return nil }

func (s *scripted) Listen(ctx context.Context, _ driver.Name, _ string) (<-chan driver.Wake, func(), error) {
	s.mu.Lock()
	listen, wakes := s.listen, s.wakes
	s.mu.Unlock()
	if listen != nil {
		if err := listen(ctx); err != nil {
			return nil, nil, err
		}
	}
	return wakes, func() {}, nil
}

// setListen ends all notifications, and has further calls of Listen fail as listen does.
func (s *scripted) setListen(listen func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == nil {
		close(s.wakes)
	}
	s.listen, s.wakes = listen, make(chan driver.Wake, 1)
}

// requests are those that the service was sent so far.
func (s *scripted) requests() []driver.AcquireRequest {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]driver.AcquireRequest(nil), s.asked...)
}

// claims is how often a lease was extended.
func (s *scripted) claims() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *scripted) set(answer func(driver.AcquireRequest) driver.AcquireReply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func grants(driver.AcquireRequest) driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: 100, FenceEnd: 20_100}
}

// handoffWake is a wake after the request seq, with a grant that lasts for ttl.
func handoffWake(seq int64, ttl time.Duration) driver.Wake {
	return driver.Wake{Grant: grants(driver.AcquireRequest{}), Seq: seq, TTL: ttl}
}

// queued has one call wait in the queue of s. It returns the results of the call.
func (s *scripted) queued(opts distlock.Options) (lease func() *distlock.Lease, failure func() error) {
	s.t.Helper()
	opts.TTL, opts.Wait = cmp.Or(opts.TTL, 30*time.Second), -1
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := distlock.New(s, &opts)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() { cancel(); mustClose(s.t, l) })
	var (
		mu  sync.Mutex
		got *distlock.Lease
		bad error
	)
	go func() {
		lease, err := l.Acquire(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		got, bad = lease, err
	}()
	if asked := s.requests(); len(asked) > 0 && asked[len(asked)-1].Alive == 0 && s.listen == nil && s.hold == nil {
		s.t.Fatalf("it has no place in the queue: %+v", asked)
	}
	lease = func() *distlock.Lease { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return got }
	failure = func() error { cancel(); synctest.Wait(); mu.Lock(); defer mu.Unlock(); return bad }
	return lease, failure
}

// A handoff lasts from some moment after the request that it names, so trust counts from that request.
func TestWaiter_N_trustCountsFromItsRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		lease, _ := s.queued(distlock.Options{})
		seq := s.requests()[1].Seq
		time.Sleep(time.Second)
		s.wakes <- handoffWake(seq, 4*time.Second)
		if lease() == nil {
			t.Fatalf("it did not begin, but asked: %+v", s.requests())
		}
		if asked := len(s.requests()); asked != 2 {
			t.Errorf("it asked %d times", asked)
		}
		<-lease().Context().Done()
		want := 4*time.Second - 4*time.Second/100 - 2*time.Millisecond - 4*time.Second/50
		if took := time.Since(s.at[1]); took != want {
			t.Errorf("trusted for %s since it asked, want %s", took, want)
		}
		if s.claims() == 0 {
			t.Error("it was never claimed")
		}
	})
}

// Without a known request of its own before the handoff, the waiter asks first.
func TestWaiter_N_untrustedHandoff_asksFirst(t *testing.T) {
	for name, c := range map[string]struct {
		wait       time.Duration // between two requests at least, if any
		behind     int64
		ttl        time.Duration
		renewEvery time.Duration
		wake       *driver.Wake
		begins     bool
	}{
		"after the last request":           {ttl: 10 * time.Second, begins: true},
		"after the one before":             {ttl: 10 * time.Second, behind: 1, begins: true},
		"after an older one":               {ttl: 10 * time.Second, behind: 2},
		"after one that is still to come":  {ttl: 10 * time.Second, behind: -1},
		"too little left":                  {ttl: 1200 * time.Millisecond},
		"nothing left":                     {ttl: time.Millisecond},
		"a lease that will not be renewed": {ttl: 10 * time.Second, renewEvery: -1},
		"an interruption, no handoff":      {wake: &driver.Wake{}},
		"a handoff that names no request":  {wake: &driver.Wake{Grant: grants(driver.AcquireRequest{}), TTL: time.Hour}},
		"a handoff that names a senseless one": {wake: &driver.Wake{Grant: grants(driver.AcquireRequest{}),
			TTL: time.Hour, Seq: -1 << 63}},
		"a handoff that names a large one": {wake: &driver.Wake{Grant: grants(driver.AcquireRequest{}),
			TTL: time.Hour, Seq: 1<<63 - 1}},
		"a handoff that took all its time": {ttl: 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newScripted(t)
				lease, _ := s.queued(distlock.Options{RenewEvery: c.renewEvery})
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
				if lease() == nil {
					t.Fatal("it has no lease")
				}
				if more := len(s.requests()) - len(asked); more != map[bool]int{true: 0, false: 1}[c.begins] {
					t.Errorf("it asked %d times before it began", more)
				}
				mustRelease(t, lease())
			})
		})
	}
}

// A handoff that is not used gives no lock: the wait that goes on and fails has none.
func TestObserver_unusedHandoff_isNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, seen := newScripted(t), &recorder{t: t}
		_, failure := s.queued(distlock.Options{Observer: seen})
		s.wakes <- handoffWake(s.requests()[1].Seq, time.Millisecond)
		_ = s.requests()
		if err := failure(); !errors.Is(err, distlock.ErrNotAcquired) || seen.ended[0].Handoff != "" {
			t.Errorf("Acquire: %v, with the handoff %q", err, seen.ended[0].Handoff)
		}
	})
}

// Work that is done soon needs no claim; work that takes longer is claimed once, and renewed like any other.
func TestWaiter_longWork_isClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.extends = nil
		lease, _ := s.queued(distlock.Options{})
		s.wakes <- handoffWake(s.requests()[1].Seq, 5*time.Second)
		le := lease()
		time.Sleep(time.Second)
		if n := s.claims(); n != 0 {
			t.Errorf("claimed %d times within a second", n)
		}
		time.Sleep(time.Second)
		if n := s.claims(); n != 1 {
			t.Errorf("claimed %d times within two", n)
		}
		time.Sleep(20 * time.Second)
		if n := s.claims(); n != 3 {
			t.Errorf("%d extends after 22 s, want a claim and two renewals", n)
		}
		if err := le.Err(); err != nil {
			t.Error(err)
		}
		mustRelease(t, le)
	})
}

// A waiter never rests on notifications, and keeps its promises.
func TestWaiter_L_asksBeforeItsPlaceEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		_, failure := s.queued(distlock.Options{})
		time.Sleep(10 * time.Minute)
		asked := s.requests()
		if len(asked) < 100 || len(asked) > 200 {
			t.Errorf("it asked %d times in 10 minutes", len(asked))
		}
		for i, req := range asked[1:] {
			last := len(asked) - 2
			if i < last {
				next := s.at[i+2].Sub(s.at[i+1])
				if next < 3*time.Second || next > 5*time.Second || req.Alive != next+time.Second {
					t.Fatalf("request %d promises to ask within %s, and does after %s", i, req.Alive, next)
				}
			}
			if req.Owner != asked[0].Owner || i > 0 && (req.Seq != asked[i].Seq+1 || req.Ticket != 7) {
				t.Fatalf("request %d: %+v after %+v", i, req, asked[i])
			}
		}
		if err := failure(); !errors.Is(err, context.Canceled) || !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if len(s.gone) != 1 || !s.gone[0].Leave || s.gone[0].Tombstone != 0 || s.gone[0].Owner != asked[0].Owner {
			t.Errorf("it left with %+v", s.gone)
		}
	})
}

// With a short TTL no place is kept for longer than that.
func TestWaiter_L_placeNeverOutlivesATTL(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		l := open(t, s, distlock.Options{TTL: 500 * time.Millisecond, Wait: 10 * time.Second})
		_, _ = l.Acquire(t.Context(), key)
		for i, req := range s.requests()[1:] {
			if req.Alive > 450*time.Millisecond || i > 0 && s.at[i+1].Sub(s.at[i]) > req.Alive*3/4 {
				t.Fatalf("request %d, %s after the one before, promises %s", i, s.at[i+1].Sub(s.at[i]), req.Alive)
			}
		}
	})
}

// No notification says that the holder's TTL is over.
func TestWaiter_L_holdersTTLOver_asks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.answer = func(req driver.AcquireRequest) driver.AcquireReply {
			if len(s.asked) > 2 {
				return grants(req)
			}
			return driver.AcquireReply{Outcome: driver.Busy, State: driver.State{Held: true,
				TTL: 700 * time.Millisecond}, Ticket: 1}
		}
		lease, _ := s.queued(distlock.Options{})
		start := time.Now()
		time.Sleep(time.Second)
		if lease() == nil {
			t.Fatal("it has no lease")
		}
		_ = s.requests()
		if took := s.at[2].Sub(start); took != 701*time.Millisecond {
			t.Errorf("it asked after %s", took)
		}
		mustRelease(t, lease())
	})
}

// After a handoff that was claimed too late, the waiter reenters at its old place under another owner.
func TestWaiter_L_lateClaim_keepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		lease, _ := s.queued(distlock.Options{})
		before := s.requests()[0].Owner
		s.set(func(req driver.AcquireRequest) driver.AcquireReply {
			if req.Owner == before {
				return driver.AcquireReply{Outcome: driver.Cancelled}
			}
			return driver.AcquireReply{Outcome: driver.Busy, State: driver.State{Held: true, TTL: time.Hour}, Ticket: req.Ticket}
		})
		s.wakes <- driver.Wake{}
		asked := s.requests()
		last := asked[len(asked)-1]
		if last.Owner == before || last.Ticket != 7 || last.Alive == 0 || last.Seq != 1 {
			t.Errorf("it entered with %+v", last)
		}
		s.set(grants)
		s.wakes <- driver.Wake{}
		if lease() == nil {
			t.Fatal("it has no lease")
		}
		mustRelease(t, lease())
	})
}

func TestWaiter_fullQueue_failsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.answer = func(req driver.AcquireRequest) driver.AcquireReply {
			reply := driver.AcquireReply{Outcome: driver.Busy, State: driver.State{Held: true, Holder: "another",
				TTL: time.Hour, Waiters: 1000}}
			if req.Alive > 0 {
				reply.Outcome = driver.Full
			}
			return reply
		}
		_, failure := s.queued(distlock.Options{})
		var busy *distlock.BusyError
		if err := failure(); !errors.As(err, &busy) || busy.Waiters != 1000 || errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "try again later") {
			t.Errorf("%v", err)
		}
	})
}

// Without notifications, waiters poll from their places in the queue, and the log has one warning.
func TestWaiter_L_noNotifications_polls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.listen = func(context.Context) error { return errors.New("NOPERM no channel") }
		var log bytes.Buffer
		lease, _ := s.queued(distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
		if lease() == nil {
			t.Fatal("it has no lease")
		}
		mustRelease(t, lease())
		if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "NOPERM") ||
			!strings.Contains(log.String(), "check the right to subscribe") || strings.Contains(log.String(), key) {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// Long pauses between attempts cost a waiter no place.
func TestWaiter_L_longPauses_keepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		s.listen = func(context.Context) error { return errors.ErrUnsupported }
		s.queued(distlock.Options{TTL: 200 * time.Millisecond})
		time.Sleep(time.Minute)
		asked := s.requests()
		if len(asked) < 10 {
			t.Errorf("it asked %d times in a minute", len(asked))
		}
		for i := 2; i < len(asked); i++ {
			if pause := s.at[i].Sub(s.at[i-1]); pause >= asked[i-1].Alive {
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
			inBubble(t, func(t *testing.T) {
				s := newScripted(t)
				lease, _ := s.queued(distlock.Options{})
				s.setListen(listen)
				time.Sleep(time.Minute)
				asked := s.requests()
				if n := len(asked); n < 200 {
					t.Errorf("without notifications it asked %d times in a minute", n)
				}
				for i, req := range asked[2:] {
					if took := s.at[i+2].Sub(s.at[i+1]); took > asked[i+1].Alive-time.Second {
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
				if lease() == nil {
					t.Fatal("a notification gave it no lease")
				}
				mustRelease(t, lease())
			})
		})
	}
}

func TestWaiter_L_handoffBeforeListen_asksAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newScripted(t)
		lease, _ := s.queued(distlock.Options{})
		s.setListen(func(context.Context) error { return errSilence })
		time.Sleep(10 * time.Second)
		var at time.Time
		s.setListen(func(context.Context) error { at = time.Now(); s.set(grants); return nil })
		time.Sleep(10 * time.Second)
		if lease() == nil {
			t.Fatal("it has no lease")
		}
		if asked := s.requests(); !s.at[len(asked)-1].Equal(at) {
			t.Errorf("it asked %s after it could listen", s.at[len(asked)-1].Sub(at))
		}
		mustRelease(t, lease())
	})
}
