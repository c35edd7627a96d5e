package lockedmemory_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// stoppable is a session in two processes, with a lock and a store that call hooks before a step of a Stop.
type stoppable struct {
	locks    *asked
	sessions *closed
	memory   *lockedmemory.LockedMemory[string, string]
	other    *lockedmemory.LockedMemory[string, string] // in another process
	store    *sessionstore.Store[string, string]
}

// asked is a lock service whose next Asks may fail, and whose notices of an Ask may be lost.
type asked struct {
	driver.Driver
	before func(driver.AskRequest) error
	loses  bool
}

func (a *asked) Ask(ctx context.Context, req driver.AskRequest) (driver.AskReply, error) {
	if a.before != nil {
		if err := a.before(req); err != nil {
			return driver.AskReply{}, err
		}
	}
	return a.Driver.(driver.Asker).Ask(ctx, req)
}

func (a *asked) NotifyAsks(ctx context.Context, namespace string, asked func(owner string)) (func(), error) {
	return a.Driver.(driver.Asker).NotifyAsks(ctx, namespace, func(owner string) {
		if !a.loses {
			asked(owner)
		}
	})
}

func (a *asked) fails(err error) { a.before = func(driver.AskRequest) error { return err } }

type closed struct {
	storedriver.Driver
	before func(storedriver.CloseRequest) error
	after  func()
}

func (c *closed) Close(ctx context.Context, req storedriver.CloseRequest) (storedriver.Verdict, error) {
	if c.before != nil {
		if err := c.before(req); err != nil {
			return storedriver.Verdict{}, err
		}
	}
	reply, err := c.Driver.Close(ctx, req)
	if c.after != nil {
		c.after()
	}
	return reply, err
}

func newStoppable(t *testing.T) *stoppable {
	t.Helper()
	s := &stoppable{locks: &asked{Driver: memlock.NewDriver()}}
	sessions, err := memstore.NewDriver(nil)
	must(t, err)
	s.sessions = &closed{Driver: sessions}
	key := lockedmemory.FixedKey(session)
	s.store, err = sessionstore.New(s.sessions, key, sessionstore.JSON[string]{}, nil)
	must(t, err)
	for _, m := range []**lockedmemory.LockedMemory[string, string]{&s.other, &s.memory} {
		locker, err := distlock.New(s.locks, &distlock.Options{Interruptible: true, Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		t.Cleanup(func() { _ = locker.Close(context.Background()) })
		*m, err = lockedmemory.New(s.store, locker, key, nil)
		must(t, err)
	}
	return s
}

func (s *stoppable) stops(t *testing.T, id string, grace time.Duration, want bool) {
	t.Helper()
	if stored, err := s.memory.Stop(t.Context(), id, grace); stored != want || err != nil {
		t.Errorf("Stop of %q: %t, %v; want %t", id, stored, err, want)
	}
}

// isStopped checks that a message is never answered: neither instance runs the function again.
func (s *stoppable) isStopped(t *testing.T, id string) {
	t.Helper()
	for _, m := range []*lockedmemory.LockedMemory[string, string]{s.memory, s.other} {
		answer, err := m.Answer(t.Context(), id, "q", func(context.Context) ([]string, error) {
			t.Errorf("the function of %s was run", id)
			return []string{"a"}, nil
		})
		if answer != nil {
			t.Errorf("the answer to %s is %q", id, answer)
		}
		isStoppedError(t, err)
		if _, known, err := m.Answered(t.Context(), id); !known || !errors.Is(err, lockedmemory.ErrStopped) {
			t.Errorf("Answered of %s: %t, %v", id, known, err)
		}
	}
}

// isStoppedError checks that an error is ErrStopped, and nothing else that a caller may ask for.
func isStoppedError(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, lockedmemory.ErrStopped) || errors.Is(err, lockedmemory.ErrSuperseded) ||
		errors.Is(err, distlock.ErrInterrupted) || errors.Is(err, distlock.ErrLost) || errors.Is(err, context.Canceled) {
		t.Errorf("%v; want ErrStopped alone", err)
	}
}

func (s *stoppable) holds(t *testing.T, want ...string) {
	t.Helper()
	if history, err := s.store.Load(t.Context(), ""); err != nil || !slices.Equal(history, want) {
		t.Errorf("the history is %q, %v; want %q", history, err, want)
	}
}

// running is an Answer whose function waits.
type running struct {
	ctx   context.Context // of the function
	leave func(answer ...string)
	ended chan error // of the Answer
}

// runs begins an Answer, and returns when its function runs.
func runs(t *testing.T, m *lockedmemory.LockedMemory[string, string], id string) *running {
	t.Helper()
	r, began, answers := &running{ended: make(chan error, 1)}, make(chan context.Context), make(chan []string, 1)
	r.leave = func(answer ...string) { answers <- answer }
	go func() {
		answer, err := m.Answer(t.Context(), id, "q", func(ctx context.Context) ([]string, error) {
			began <- context.WithoutCancel(ctx)
			if answer := <-answers; answer != nil {
				return answer, nil
			}
			return nil, errInner
		})
		if (answer == nil) != (err != nil) {
			t.Errorf("Answer: %q, %v", answer, err)
		}
		r.ended <- err
	}()
	r.ctx = <-began
	return r
}

// isOver checks that nothing which an Answer does from now on is stored, and that it returns ErrStopped.
func (s *stoppable) isOver(t *testing.T, r *running) {
	t.Helper()
	if err := s.store.Save(r.ctx, "late", "write"); !errors.Is(err, distlock.ErrLost) && !errors.Is(err, lockedmemory.ErrStopped) {
		t.Errorf("a Save after the Stop: %v", err)
	}
	r.leave("late")
	isStoppedError(t, <-r.ended)
}

// After Stop has returned, the message is never answered, whatever its Answer did before. If the message was
// answered first, Stop says so.
func TestStop_O_message(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second} {
		for name, begin := range map[string]func(t *testing.T, s *stoppable) (end func()){
			"unknown": func(*testing.T, *stoppable) func() { return func() {} },
			"runs": func(t *testing.T, s *stoppable) func() {
				r := runs(t, s.other, "id")
				return func() { s.isOver(t, r) }
			},
			"waits": func(t *testing.T, s *stoppable) func() {
				first, waits := runs(t, s.other, "first"), make(chan error)
				go func() {
					waits <- second(s.memory.Answer(t.Context(), "id", "q", reply("a")))
				}()
				synctest.Wait()
				return func() {
					first.leave("first")
					must(t, <-first.ended)
					isStoppedError(t, <-waits)
					must(t, s.memory.Clear(t.Context()))
				}
			},
			"its turn is over": func(t *testing.T, s *stoppable) func() {
				r := runs(t, s.other, "id")
				r.leave()
				if err := <-r.ended; err != errInner {
					t.Errorf("Answer: %v", err)
				}
				return func() {}
			},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, grace), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStoppable(t)
					end := begin(t, s)
					s.stops(t, "id", grace, false)
					end()
					s.stops(t, "id", grace, false)
					s.isStopped(t, "id")
					s.holds(t)
					must(t, second(s.other.Answer(t.Context(), "later", "q", reply("a"))))
					s.stops(t, "later", grace, true)
					must(t, second(s.other.Answer(t.Context(), "later", "q", reply("b"))))
					s.holds(t, "q", "a")
				})
			})
		}
	}
}

// An answer that the function returns within the grace is stored. Until then, the message is open.
func TestStop_O_grace(t *testing.T) {
	for _, id := range []string{"id", ""} {
		for work, want := range map[time.Duration]error{0: nil, 900 * time.Millisecond: nil, 2 * time.Second: lockedmemory.ErrStopped,
			-1: distlock.ErrInterrupted} {
			synctest.Test(t, func(t *testing.T) {
				s := newStoppable(t)
				began, ended := make(chan bool), make(chan bool)
				go func() {
					defer close(ended)
					answer, err := s.other.Answer(t.Context(), "id", "q", func(ctx context.Context) ([]string, error) {
						close(began)
						<-ctx.Done()
						if work < 0 {
							return nil, ctx.Err()
						}
						time.Sleep(work)
						return []string{"a"}, s.other.Save(ctx, "side", "write")
					})
					if !errors.Is(err, want) || (want == nil) != slices.Equal(answer, []string{"a"}) {
						t.Errorf("Stop(%q), %s of work: Answer: %q, %v; want %v", id, work, answer, err, want)
					}
				}()
				<-began
				s.stops(t, id, time.Second, want == nil)
				<-ended
				if want != nil {
					s.isStopped(t, "id")
					s.holds(t)
				} else {
					s.holds(t, "side", "write", "q", "a")
				}
			})
		}
	}
}

// An interrupted Answer keeps its message open, for a repetition.
func TestAnswer_O_interrupted_repeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		for _, want := range []error{distlock.ErrInterrupted, nil} {
			answer, err := s.memory.Answer(t.Context(), "id", "q", func(ctx context.Context) ([]string, error) {
				if lease, _ := lockedmemory.Lease(ctx); want != nil {
					must(t, second(fencing.Locker(lease).Interrupt(t.Context(), session)))
					<-ctx.Done()
				}
				return []string{"a"}, want
			})
			if !errors.Is(err, want) || (answer != nil) != (want == nil) {
				t.Errorf("Answer: %q, %v; want %v", answer, err, want)
			}
		}
		s.holds(t, "q", "a")
	})
}

// A repetition that begins during a Stop does not run, or is ended.
func TestStop_O_repetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		s.locks.before = func(driver.AskRequest) error {
			s.locks.before = nil
			s.isStopped(t, "id")
			return nil
		}
		s.stops(t, "id", 0, false)

		first := runs(t, s.memory, "graced")
		var repetition *running
		s.sessions.before = func(storedriver.CloseRequest) error {
			s.sessions.before = nil
			first.leave()
			<-first.ended
			repetition = runs(t, s.other, "graced")
			return nil
		}
		s.stops(t, "graced", time.Second, false)
		s.isOver(t, repetition)
		s.holds(t)
	})
}

// A Stop ends work of a lease that the lock has lost in a failover, also if the token of that lease is ahead
// of the lock's clock.
func TestStop_O_lockLost(t *testing.T) {
	for _, id := range []string{"id", ""} {
		for _, ahead := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				s := newStoppable(t)
				fence := time.Now().Add(ahead).UnixMicro()
				saves := func(n int64, want storedriver.Outcome) {
					t.Helper()
					v, err := s.sessions.Append(t.Context(), storedriver.Append{
						Write:   storedriver.Write{Access: storedriver.Access{Session: session, Fence: fence}, N: n, Op: fmt.Sprintf("%032d", n)},
						Content: storedriver.Content{Messages: [][]byte{[]byte(`"m"`)}}})
					if err != nil || v.Outcome != want {
						t.Errorf("Stop(%q) of a lease that is %s ahead: %+v, %v; want outcome %d", id, ahead, v, err, want)
					}
				}
				saves(1, storedriver.Done)
				time.Sleep(time.Millisecond) // by the clock of the lock
				s.stops(t, id, 0, false)
				saves(2, storedriver.Stale)
			})
		}
	}
}

// A Stop of one message spares a Turn that goes on with the grant of another one, whose token is lower.
func TestStop_O_sparesHandoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		first := runs(t, s.memory, "first")
		turns := make([]chan error, 2)
		for i := range turns {
			turns[i] = make(chan error, 1)
			go func() {
				turns[i] <- s.other.Turn(t.Context(), func(ctx context.Context) error {
					if i == 0 {
						time.Sleep(time.Millisecond)
						return nil
					}
					must(t, s.other.Append(ctx, "before"))
					s.stops(t, "waits", 0, false)
					return s.other.Append(ctx, "after")
				})
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		first.leave("a")
		must(t, errors.Join(<-first.ended, <-turns[0], <-turns[1]))
	})
}

// Under an Answer, a higher token does not outrun a Stop.
func TestStop_O_raisedToken_refused(t *testing.T) {
	for name, call := range map[string]func(*stoppable, context.Context) error{
		"Load": func(s *stoppable, ctx context.Context) error { return second(s.store.Load(ctx, "")) },
		"Save": func(s *stoppable, ctx context.Context) error { return s.store.Save(ctx, "late", "write") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			r := runs(t, s.other, "id")
			s.stops(t, "id", 0, false)
			lease, _ := lockedmemory.Lease(r.ctx)
			must(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()))
			for range 2 {
				if err := call(s, r.ctx); !errors.Is(err, lockedmemory.ErrStopped) && !errors.Is(err, distlock.ErrLost) {
					t.Errorf("%s under a raised token: %v", name, err)
				}
			}
			s.isOver(t, r)
			s.holds(t)
		})
	}
	synctest.Test(t, func(t *testing.T) { // nor a later lease
		s := newStoppable(t)
		r := runs(t, s.other, "id")
		lease, _ := lockedmemory.Lease(r.ctx)
		must(t, second(s.sessions.Close(t.Context(), storedriver.CloseRequest{Session: session, Mark: lease.Fence() + 1})))
		must(t, fencing.RaiseToken(t.Context(), lease, lease.Fence()+1))
		if err := s.store.Save(r.ctx, "late", "write"); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Save of an overtaken lease: %v", err)
		}
		r.leave()
		<-r.ended
	})
}

// Stop without an ID ends the Answer that runs, and the turns and writes that wait. Later ones are not ended.
func TestStop_O_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		r := runs(t, s.other, "id")
		var waiters sync.WaitGroup
		for _, m := range []*lockedmemory.LockedMemory[string, string]{s.memory, s.other} {
			waiters.Go(func() {
				_, err := m.Answer(t.Context(), "waits", "q", reply("a"))
				isStoppedError(t, err)
			})
			waiters.Go(func() {
				err := m.Turn(t.Context(), func(ctx context.Context) error { return second(m.Load(ctx, "")) })
				if !errors.Is(err, distlock.ErrInterrupted) {
					t.Errorf("a Turn that waited: %v", err)
				}
			})
			waiters.Go(func() {
				if err := m.Save(t.Context(), "late", "write"); !errors.Is(err, distlock.ErrInterrupted) {
					t.Errorf("a Save that waited: %v", err)
				}
			})
		}
		time.Sleep(time.Second) // until the waiters in the process of the turn have asked the lock, too
		s.stops(t, "", 0, false)
		later := make(chan error)
		go func() { later <- s.memory.Save(t.Context(), "later", "write") }()
		synctest.Wait()
		s.isOver(t, r)
		waiters.Wait()
		must(t, <-later)
		s.isStopped(t, "id")
		s.isStopped(t, "waits")
		s.holds(t, "later", "write")
	})
}

// Without a grace, a Stop of the session closes the message before it asks. So the work finds it closed.
func TestStop_O_session_closesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		r := runs(t, s.other, "id")
		s.locks.before = func(req driver.AskRequest) error {
			if _, _, err := s.memory.Answered(t.Context(), "id"); req.Fence > 0 && !errors.Is(err, lockedmemory.ErrStopped) {
				t.Errorf("the turn is asked, and its message: %v", err)
			}
			return nil
		}
		s.stops(t, "", 0, false)
		s.isOver(t, r)
	})
}

// A Stop of the session says what became of the work that it ends, not of work that was done before.
func TestStop_O_session_doneBeforeTheAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		done := runs(t, s.other, "done")
		var ends *running
		s.sessions.before = func(storedriver.CloseRequest) error {
			s.sessions.before = nil
			done.leave("a")
			must(t, <-done.ended)
			ends = runs(t, s.other, "ends")
			return nil
		}
		s.stops(t, "", 0, false)
		s.isOver(t, ends)
		s.holds(t, "q", "a")
	})
}

// A Stop of the session ends the waiters from before it. A caller that comes in its grace is answered.
func TestStop_O_session_inTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		r := runs(t, s.other, "id")
		before := make(chan error)
		go func() {
			before <- second(s.other.Answer(t.Context(), "before", "q", func(context.Context) ([]string, error) {
				t.Error("a waiter from before the Stop began its work")
				return []string{"a"}, nil
			}))
		}()
		time.Sleep(time.Second)
		stopped := make(chan bool)
		go func() { s.stops(t, "", 10*time.Second, true); close(stopped) }()
		synctest.Wait()
		later := make(chan error)
		go func() {
			later <- second(s.memory.Answer(t.Context(), "later", "q2", func(context.Context) ([]string, error) {
				<-stopped // it runs when the Stop sees that the turn has ended
				return []string{"a2"}, nil
			}))
		}()
		time.Sleep(310 * time.Millisecond) // between two looks
		r.leave("a")
		must(t, errors.Join(<-r.ended, <-later))
		isStoppedError(t, <-before)
		s.holds(t, "q", "a", "q2", "a2")
	})
}

// Another ask does not end the grace of a Stop.
func TestStop_O_grace_askedAgain(t *testing.T) {
	for _, id := range []string{"id", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			r := runs(t, s.other, "id")
			var stops sync.WaitGroup
			for range 2 {
				stops.Go(func() { s.stops(t, id, 900*time.Millisecond, true) })
				time.Sleep(300 * time.Millisecond)
			}
			r.leave("a")
			must(t, <-r.ended)
			stops.Wait()
			s.holds(t, "q", "a")
		})
	}
}

// Each way in which a Stop fails has its error.
func TestStop_failure(t *testing.T) {
	down, broken := fmt.Errorf("%w: down", driver.ErrNotDone), errors.New("no answer")
	stop := func(s *stoppable, ctx context.Context, id string) error { return second(s.memory.Stop(ctx, id, 0)) }
	for name, c := range map[string]struct {
		id   string
		fail func(*stoppable)
		want error
	}{
		"the store is down":         {"id", func(s *stoppable) { s.sessions.before = func(storedriver.CloseRequest) error { return down } }, distlock.ErrUnavailable},
		"an answer is lost":         {"id", func(s *stoppable) { s.sessions.before = func(storedriver.CloseRequest) error { return broken } }, distlock.ErrOutcomeUnknown},
		"the lock is down":          {"id", func(s *stoppable) { s.locks.fails(down) }, distlock.ErrOutcomeUnknown},
		"the lock's answer is lost": {"", func(s *stoppable) { s.locks.fails(broken) }, distlock.ErrOutcomeUnknown},
		"the backend asks nobody":   {"", func(s *stoppable) { s.locks.fails(errors.ErrUnsupported) }, errors.ErrUnsupported},
		"the backend asks no work":  {"id", func(s *stoppable) { s.locks.fails(errors.ErrUnsupported) }, nil},
		"other turns come all the time": {"", func(s *stoppable) {
			s.sessions.before = func(c storedriver.CloseRequest) error {
				return second(s.sessions.Driver.Close(context.Background(), storedriver.CloseRequest{Session: session, Mark: c.Mark + 1}))
			}
		}, distlock.ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStoppable(t)
			c.fail(s)
			err := stop(s, t.Context(), c.id)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v; want %v", name, err, c.want)
			}
			for _, other := range []error{distlock.ErrUnavailable, distlock.ErrOutcomeUnknown} {
				if other != c.want && errors.Is(err, other) {
					t.Errorf("%s: %v; want %v alone", name, err, c.want)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		if _, err := s.memory.Stop(t.Context(), "id", -1); !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("a negative grace: %v", err)
		}
		r := runs(t, s.memory, "id")
		var self *distlock.BusyError
		for _, id := range []string{"id", "other", ""} {
			if err := stop(s, r.ctx, id); !errors.As(err, &self) || !self.Self {
				t.Errorf("in the turn itself: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := stop(s, ctx, "id"); !errors.Is(err, context.Canceled) || errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("an ended context: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.memory.Stop(ctx, "id", 2*time.Second); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("a context that ends in the grace: %v", err)
		}
		r.leave("a")
		must(t, <-r.ended)
	})
}

// In front of another memory, Stop has no message, and only the end of the turn is certain.
func TestStop_otherMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoppable(t)
		m, err := lockedmemory.New(&history{}, fencing.Locker(leaseOf(t, s.memory)), lockedmemory.FixedKey(session), nil)
		must(t, err)
		for _, c := range []struct {
			id    string
			grace time.Duration
			end   time.Duration // of a turn, after the Stop; 0: none
			want  error
		}{
			{"id", 0, 0, errors.ErrUnsupported},
			{"", 0, 0, nil},
			{"", 0, time.Second, distlock.ErrOutcomeUnknown},
			{"", time.Second, 2 * time.Second, distlock.ErrOutcomeUnknown},
			{"", 2 * time.Second, time.Second, nil},
		} {
			var turn sync.WaitGroup
			if c.end > 0 {
				turn.Go(func() {
					_ = s.other.Turn(t.Context(), func(context.Context) error { time.Sleep(c.end); return nil })
				})
				synctest.Wait()
			}
			if stored, err := m.Stop(t.Context(), c.id, c.grace); stored || !errors.Is(err, c.want) {
				t.Errorf("%+v: %t, %v", c, stored, err)
			}
			turn.Wait()
		}
		empty, err := lockedmemory.New(&history{}, fencing.Locker(leaseOf(t, s.memory)), lockedmemory.SessionKey, nil)
		must(t, err)
		if _, err := empty.Stop(t.Context(), "", 0); !errors.Is(err, distlock.ErrInvalidKey) {
			t.Errorf("without a session: %v", err)
		}
	})
}

func leaseOf(t *testing.T, m *lockedmemory.LockedMemory[string, string]) (lease *distlock.Lease) {
	t.Helper()
	must(t, m.Turn(t.Context(), func(ctx context.Context) error {
		lease, _ = lockedmemory.Lease(ctx)
		return nil
	}))
	return lease
}

var stopRounds = flag.Int("stops", 2000, "rounds of TestStop_O_race_storedOrRefused")

// An Answer returns while its message is stopped. The answer is stored and Stop says so, or it is refused.
func TestStop_O_race_storedOrRefused(t *testing.T) {
	synctest.Test(t, raceStop)
}

func raceStop(t *testing.T) {
	s, outcomes := newStoppable(t), map[bool]int{}
	for n := range *stopRounds {
		if n%50 == 0 { // for speed
			must(t, s.memory.Delete(t.Context()))
		}
		var race sync.WaitGroup
		var answer []string
		var failure error
		id, again := fmt.Sprint(n), s.memory
		if n%2 > 0 {
			again = s.other
		}
		began := make(chan bool)
		race.Go(func() {
			answer, failure = again.Answer(t.Context(), id, "q", func(context.Context) ([]string, error) {
				close(began)
				return []string{id}, nil
			})
		})
		if n%3 > 0 {
			<-began
		}
		stop, grace := id, time.Duration(0)
		if n%3 == 1 {
			stop = ""
		}
		if n%5 == 0 {
			grace = time.Second
		}
		stored, err := s.memory.Stop(t.Context(), stop, grace)
		must(t, err)
		race.Wait()
		exchange, known, now := s.memory.Answered(t.Context(), id)
		isStored := now == nil && known && slices.Equal(exchange.Messages, []string{"q", id})
		isClosed := now != nil && errors.Is(now, lockedmemory.ErrStopped)
		switch {
		case isStored == isClosed:
			t.Fatalf("round %d: %+v, %t, %v", n, exchange, known, now)
		case isStored != (failure == nil && slices.Equal(answer, []string{id})), stop != "" && isStored != stored:
			t.Fatalf("round %d: stored %t; Stop(%q): %t; Answer: %q, %v", n, isStored, stop, stored, answer, failure)
		case isClosed:
			if grace > 0 && errors.Is(failure, distlock.ErrInterrupted) { // before its function
				_, failure = again.Answer(t.Context(), id, "q", reply("late"))
			}
			isStoppedError(t, failure)
		}
		outcomes[isStored]++
	}
	t.Logf("stored %d, refused %d", outcomes[true], outcomes[false])
	if len(outcomes) < 2 {
		t.Error("the race has one outcome alone")
	}
}
