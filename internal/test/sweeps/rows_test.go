package sweeps

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/inbox"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// row is a call. Each calls scene.sweep once, and then judge.
type row struct {
	name   string
	covers string // methods, as "Locker.Acquire", with spaces between them
	run    func(s *scene)
	silent bool // it asks no service
}

var lockRows = []row{
	{name: "acquire-free", covers: "Locker.Acquire", run: acquires(func(ctx context.Context, s *scene) (*distlock.Lease, error) {
		return s.faulty.locker.Acquire(ctx, s.key, distlock.WithWait(s.wait))
	})},
	{name: "acquire-waits", covers: "Locker.Acquire", run: waits(1)},
	{name: "acquire-twoWait", covers: "Locker.Acquire", run: waits(2)},
	{name: "tryAcquire-free", covers: "Locker.TryAcquire", run: acquires(func(ctx context.Context, s *scene) (*distlock.Lease, error) {
		return s.faulty.locker.TryAcquire(ctx, s.key, distlock.WithWait(s.wait))
	})},
	{name: "tryAcquire-busy", covers: "Locker.TryAcquire", run: func(s *scene) {
		lease, err := s.sound.locker.Acquire(s.ctx, s.key)
		s.must(err)
		s.sweep(s.ctx, func(ctx context.Context) error {
			_, err := s.faulty.locker.TryAcquire(ctx, s.key, distlock.WithWait(s.wait))
			return err
		})
		if s.err == nil {
			s.Error("two have the lock")
		}
		if err := lease.Err(); err != nil {
			s.Errorf("the holder: %v", err)
		}
		s.must(lease.Release(s.ctx))
		s.judge(distlock.ErrNotAcquired)
	}},
	{name: "do", covers: "Locker.Do Locker.FromContext", run: runs((*distlock.Locker).Do)},
	{name: "tryDo", covers: "Locker.TryDo", run: runs((*distlock.Locker).TryDo)},
	{name: "inspect", covers: "Locker.Inspect", run: func(s *scene) {
		lease := s.hold()
		var info distlock.Info
		s.sweep(s.ctx, func(ctx context.Context) (err error) {
			info, err = s.faulty.locker.Inspect(ctx, s.key)
			return err
		})
		if s.err == nil && (!info.Held || info.Fence != lease.Fence()) || s.err != nil && info != (distlock.Info{}) {
			s.Errorf("%+v, %v", info, s.err)
		}
		s.must(lease.Release(s.ctx))
		s.judge()
	}},
	{name: "ping", covers: "Locker.Ping", run: func(s *scene) {
		s.sweep(s.ctx, s.faulty.locker.Ping)
		s.judge()
	}},
	{name: "close", covers: "Locker.Close", run: func(s *scene) {
		lease := s.hold()
		waiting := make(chan error, 1)
		go func() {
			next, err := s.faulty.locker.Acquire(s.ctx, s.key)
			waiting <- errors.Join(err, next.Release(s.ctx))
		}()
		s.awaitQueued()
		s.sweep(s.ctx, s.faulty.locker.Close)
		if s.point.kind.cancels && errors.Is(s.err, context.Canceled) {
			s.must(s.faulty.locker.Close(s.ctx))
		}
		if err := <-waiting; !errors.Is(err, distlock.ErrClosed) {
			s.Errorf("the waiter: %v", err)
		}
		if err := lease.Err(); !errors.Is(err, distlock.ErrNotHeld) && !errors.Is(err, distlock.ErrLost) {
			s.Errorf("the lease: %v", err)
		}
		if s.point.kind.onwards {
			s.soon = max(s.soon, fencing.Options(s.faulty.locker).TTL+time.Second) // what it could not release expires
		}
		s.judge()
	}},
	{name: "extend-longer", covers: "Lease.Extend", run: extends(2 * ttl)},
	{name: "extend-shorter", covers: "Lease.Extend", run: extends(ttl / 2)},
	{name: "raiseToken", run: func(s *scene) {
		lease := s.hold()
		before := lease.Fence()
		above := before + time.Minute.Microseconds()
		s.sweep(s.ctx, func(ctx context.Context) error { return fencing.RaiseToken(ctx, lease, above) })
		if fence := lease.Fence(); s.err == nil && fence <= above || s.err != nil && fence < before {
			s.Errorf("the token was %d, is %d, was to be above %d: %v", before, fence, above, s.err)
		}
		if s.err != nil {
			s.must(fencing.RaiseToken(s.ctx, lease, above))
		}
		s.judgeHeld(lease)
	}},
	{name: "release", covers: "Lease.Release", run: func(s *scene) {
		lease := s.hold()
		s.releases(lease.Release)
		unknown := s.err != nil && !errors.Is(s.err, distlock.ErrLost)
		if err := lease.Release(s.ctx); err != nil && !errors.Is(err, distlock.ErrLost) && !(unknown && errors.Is(err, distlock.ErrOutcomeUnknown)) {
			s.Errorf("Release, again: %v", err)
		}
	}},
	{name: "release-toALocalWaiter", covers: "Lease.Release", run: func(s *scene) {
		lease := s.hold()
		waiting := make(chan error, 1)
		go func() {
			waiting <- s.faulty.locker.Do(s.ctx, s.key, func(context.Context) error { return nil }, distlock.WithWait(2*ttl))
		}()
		time.Sleep(30 * time.Millisecond) // after the time of handoffs within a process
		s.awaitQueued()
		s.sweep(s.ctx, lease.Release)
		if err := <-waiting; err != nil && !errors.Is(err, distlock.ErrUnavailable) {
			s.Errorf("the waiter: %v", err)
		}
		s.judge()
	}},
	{name: "guard", covers: "Lease.Guard", silent: true, run: func(s *scene) {
		lease, ran := s.hold(), false
		s.sweep(s.ctx, func(ctx context.Context) error {
			return lease.Guard(ctx, func(context.Context) error { ran = true; return nil })
		})
		if s.err != nil || !ran {
			s.Errorf("%v, ran: %t", s.err, ran)
		}
		s.lease = lease
		s.judge()
	}},
}

// acquires is about calls that return a lease.
func acquires(get func(ctx context.Context, s *scene) (*distlock.Lease, error)) func(*scene) {
	return func(s *scene) {
		s.sweep(s.ctx, func(ctx context.Context) (err error) {
			s.lease, err = get(ctx, s)
			return err
		})
		if (s.err == nil) == (s.lease == nil) {
			s.Errorf("the lease %p, and %v", s.lease, s.err)
		}
		s.judge()
	}
}

// waits is about n callers of one process that queue behind another process.
func waits(n int) func(*scene) {
	return func(s *scene) {
		s.blocked()
		s.sweep(s.ctx, func(ctx context.Context) error {
			var all sync.WaitGroup
			errs := make([]error, n)
			for i := range n {
				all.Go(func() {
					lease, err := s.faulty.locker.Acquire(ctx, s.key, distlock.WithWait(s.wait))
					if err == nil {
						if err := lease.Err(); err != nil {
							s.Errorf("the lease was granted, and: %v", err)
						}
						err = lease.Release(context.Background())
					}
					errs[i] = err
				})
			}
			all.Wait()
			for _, err := range errs {
				if s.err = err; err != nil {
					s.judgeError([]error{distlock.ErrNotAcquired})
				}
			}
			return errors.Join(errs...)
		})
		s.unblocked()
		s.judge(distlock.ErrNotAcquired)
	}
}

// runs is about calls that run a function under the lock.
func runs(do func(l *distlock.Locker, ctx context.Context, key string, fn func(context.Context) error,
	opts ...distlock.CallOption) error) func(*scene) {
	return func(s *scene) {
		ran := 0
		s.sweep(s.ctx, func(ctx context.Context) error {
			return do(s.faulty.locker, ctx, s.key, func(ctx context.Context) error {
				ran++
				lease, ok := s.faulty.locker.FromContext(ctx, s.key)
				if !ok || lease.Err() != nil {
					s.Errorf("the function runs without the lock: %v", lease.Err())
				}
				return nil
			}, distlock.WithWait(s.wait))
		})
		if s.err == nil && ran != 1 || s.err != nil && ran != 0 {
			s.Errorf("the function ran %d times, and: %v", ran, s.err)
		}
		s.judge()
	}
}

func extends(by time.Duration) func(*scene) {
	return func(s *scene) {
		lease := s.hold()
		s.sweep(s.ctx, func(ctx context.Context) error { return lease.Extend(ctx, by) })
		s.judgeHeld(lease)
	}
}

// judgeHeld judges a call that has failed or not, under a lease that is held, unless it has hung
// for so long.
func (s *scene) judgeHeld(lease *distlock.Lease) {
	s.Helper()
	if err := lease.Err(); err != nil {
		if !s.point.mayLose() || !errors.Is(err, distlock.ErrLost) {
			s.Errorf("the lease: %v; the call: %v", err, s.err)
		}
		_ = lease.Release(s.ctx)
		s.judge()
		return
	}
	s.must(lease.Release(s.ctx))
	s.judge()
}

// releases sweeps a release. One that has succeeded lets others in, one that has failed lets them
// in soon.
func (s *scene) releases(release func(ctx context.Context) error) {
	s.Helper()
	s.sweep(s.ctx, func(ctx context.Context) error {
		err := release(ctx)
		if err == nil {
			next, err := s.sound.locker.TryAcquire(s.ctx, s.key)
			if err != nil {
				s.Errorf("after a release that has succeeded: %v", err)
			}
			s.must(next.Release(s.ctx))
		}
		return err
	})
	s.judge()
}

var storeRows = func() (rows []row) {
	for _, named := range []bool{false, true} {
		saves, suffix := func(s *scene) func(context.Context) error {
			return func(ctx context.Context) error { return s.save(ctx, s.faulty.memory, secret) }
		}, ""
		again := func(*scene, context.Context) {}
		if named {
			suffix = "-once"
			saves = func(s *scene) func(context.Context) error {
				return func(ctx context.Context) error { return s.saveOnce(ctx, secret) }
			}
			again = func(s *scene, ctx context.Context) {
				if lease, ok := s.faulty.locker.FromContext(ctx, s.key); ok && lease.Err() != nil {
					s.later = func() { s.repeat(s.ctx) } // the turn is over
				} else {
					s.repeat(ctx)
				}
			}
		}
		rows = append(rows,
			row{name: "save" + suffix, covers: "LockedMemory.Save Store.Save LockedMemory.SaveOnce Store.SaveOnce", run: func(s *scene) {
				s.must(s.save(s.ctx, s.faulty.memory, secret+" before"))
				s.sweep(s.ctx, saves(s))
				again(s, s.ctx)
				s.judge()
			}},
			row{name: "save-whileBusy" + suffix, covers: "LockedMemory.Save Store.Save", run: func(s *scene) {
				s.blocked()
				s.sweep(s.ctx, saves(s))
				s.unblocked()
				again(s, s.ctx)
				s.judge(distlock.ErrNotAcquired)
			}},
			row{name: "save-first" + suffix, covers: "Store.Save", run: inTurn(func(s *scene, turn context.Context) {
				s.sweep(turn, saves(s))
				again(s, turn)
			})},
			row{name: "save-second" + suffix, covers: "Store.Save", run: inTurn(func(s *scene, turn context.Context) {
				s.must(s.save(turn, s.faulty.memory, secret+" first"))
				s.sweep(turn, saves(s))
				again(s, turn)
			})})
	}
	for name, read := range reads {
		rows = append(rows,
			row{name: name, covers: "LockedMemory.Load Store.Load LockedMemory.Search Store.Search " +
				"LockedMemory.Forward Store.Forward LockedMemory.Answered Store.Answered " +
				"LockedMemory.Backward Store.Backward LockedMemory.Last Store.Last " +
				"LockedMemory.Sessions Store.Sessions LockedMemory.Ping Store.Ping " +
				"LockedMemory.Pending Store.Pending LockedMemory.Inboxes Store.Inboxes", run: func(s *scene) {
				s.must(s.save(s.ctx, s.faulty.memory, secret+" before"))
				s.sweep(s.ctx, func(ctx context.Context) error { return read(ctx, s, 1) })
				s.judge()
			}},
			row{name: name + "-inATurn", covers: "", run: func(s *scene) {
				s.must(s.save(s.ctx, s.sound.memory, secret+" before"))
				inTurn(func(s *scene, turn context.Context) {
					s.sweep(turn, func(ctx context.Context) error { return read(ctx, s, 1) })
				})(s)
			}})
	}
	return append(rows,
		row{name: "append", covers: "LockedMemory.Append Store.Append", run: func(s *scene) {
			s.sweep(s.ctx, func(ctx context.Context) error { return s.save(ctx, appender{s.faulty.memory}, secret) })
			s.judge()
		}},
		row{name: "answer", covers: "LockedMemory.Answer Store.Begin", run: func(s *scene) {
			s.sweep(s.ctx, func(ctx context.Context) error { return s.save(ctx, answerer{s.faulty.memory}, secret) })
			if s.err != nil { // the repetition stores it once
				s.maybe = nil
				s.must(s.save(s.ctx, answerer{s.sound.memory}, secret))
			}
			s.judge()
		}},
		row{name: "once", covers: "LockedMemory.Once", run: func(s *scene) {
			s.sweep(s.ctx, func(ctx context.Context) error { return s.save(ctx, once{s.faulty.memory}, secret) })
			if s.err != nil { // the repetition stores it once
				s.maybe = nil
				s.must(s.save(s.ctx, once{s.sound.memory}, secret))
			}
			s.judge()
		}},
		row{name: "submit", covers: "LockedMemory.Put Store.Put LockedMemory.AnswerAll Store.AppendAll", run: func(s *scene) {
			s.sweep(s.ctx, func(ctx context.Context) error { return s.save(ctx, submitter{s.faulty.memory}, secret) })
			if s.err != nil { // it was pending, or the repetition puts it
				s.maybe = nil
				s.must(s.save(s.ctx, submitter{s.sound.memory}, secret))
			}
			if pending, err := s.sound.memory.Pending(s.ctx); err != nil || len(pending) > 0 {
				s.Errorf("pending: %+v, %v", pending, err)
			}
			s.judge()
		}},
		row{name: "clear", covers: "LockedMemory.Clear Store.Clear", run: func(s *scene) {
			s.must(s.save(s.ctx, s.faulty.memory, secret+" before"))
			s.sweep(s.ctx, func(ctx context.Context) error { return s.clears(ctx, s.faulty.memory.Clear) })
			s.judge()
		}},
		row{name: "delete", covers: "LockedMemory.Delete Store.Delete", run: func(s *scene) {
			s.must(s.save(s.ctx, s.faulty.memory, secret+" before"))
			s.sweep(s.ctx, func(ctx context.Context) error { return s.clears(ctx, s.faulty.memory.Delete) })
			s.judge()
		}},
		row{name: "clear-inATurn", covers: "LockedMemory.Clear Store.Clear", run: inTurn(func(s *scene, turn context.Context) {
			s.must(s.save(turn, s.faulty.memory, secret+" before"))
			s.sweep(turn, func(ctx context.Context) error { return s.clears(ctx, s.faulty.memory.Clear) })
		})},
		row{name: "replace", covers: "LockedMemory.Replace Store.Replace", run: inTurn(func(s *scene, turn context.Context) {
			s.must(s.save(turn, s.faulty.memory, secret+" before"))
			var place lockedmemory.Place
			for exchange, err := range s.faulty.memory.Forward(turn, lockedmemory.Place{}) {
				s.must(err)
				place = exchange.Place
			}
			s.sweep(turn, func(ctx context.Context) error { return s.replaces(ctx, place) })
		})},
		row{name: "fork", covers: "LockedMemory.Fork Store.Fork", run: func(s *scene) {
			fork := func(ctx context.Context, i instance) error {
				return i.memory.Fork(ctx, s.key+"-fork", lockedmemory.Place{})
			}
			s.must(s.save(s.ctx, s.faulty.memory, secret+" before"))
			s.sweep(s.ctx, func(ctx context.Context) error { return fork(ctx, s.faulty) })
			again := fork(s.ctx, s.sound)
			isThere := errors.Is(again, sessionstore.ErrNotEmpty)
			if again != nil && !isThere || s.err == nil && !isThere || isThere && s.err != nil && !saysPerhaps(s.err) {
				s.Errorf("Fork: %v, and repeated: %v", s.err, again)
			}
			s.judge()
		}},
		row{name: "interrupt", covers: "Locker.Interrupt", run: func(s *scene) { // here, because a quorum has none
			lease, err := s.sound.locker.Acquire(s.ctx, s.key)
			s.must(err)
			held := false
			s.sweep(s.ctx, func(ctx context.Context) (err error) {
				held, err = s.faulty.locker.Interrupt(ctx, s.key)
				return err
			})
			if err := lease.Err(); held != (s.err == nil) || err != nil {
				s.Errorf("held: %t, %v; the lease: %v", held, s.err, err)
			}
			s.must(lease.Release(s.ctx))
			s.judge()
		}},
		row{name: "stop", covers: "LockedMemory.Stop Store.CloseMessage", run: func(s *scene) {
			stop := func(ctx context.Context, in instance) error {
				stored, err := in.memory.Stop(ctx, secret+"-id", 0)
				if stored {
					s.Error("Stop says that the answer is stored")
				}
				return err
			}
			_, err := s.sound.memory.Answer(s.ctx, secret+"-id", secret, func(context.Context) ([]string, error) {
				s.sweep(s.ctx, func(ctx context.Context) error { return stop(ctx, s.faulty) })
				return []string{answer(secret)}, nil
			})
			switch {
			case err == nil && s.err != nil:
				s.saved = append(s.saved, secret)
			case !errors.Is(err, lockedmemory.ErrStopped):
				s.Errorf("the answer: %v; Stop: %v", err, s.err)
			default:
				s.must(stop(s.ctx, s.sound))
			}
			s.judge()
		}},
		row{name: "answer-interrupts", covers: "LockedMemory.Answer Store.CloseMessage", run: func(s *scene) {
			memory, err := lockedmemory.New(s.faulty.store, s.faulty.locker, lockedmemory.FixedKey(s.key),
				&lockedmemory.Options{Busy: lockedmemory.Interrupt, Wait: s.wait})
			s.must(err)
			begun, over, older := make(chan struct{}), atomic.Bool{}, make(chan error, 1)
			go func() {
				_, err := s.sound.memory.Answer(s.ctx, "older", "older", func(ctx context.Context) ([]string, error) {
					close(begun)
					lease, _ := lockedmemory.Lease(ctx)
					servers.Within(time.Minute, func() bool {
						info, _ := s.sound.locker.Inspect(s.ctx, s.key)
						return over.Load() || info.Fence > lease.Fence()
					})
					return nil, distlock.ErrInterrupted
				})
				older <- err
			}()
			<-begun
			s.sweep(s.ctx, func(ctx context.Context) error { return s.save(ctx, answerer{memory}, secret) })
			over.Store(true)
			if err := <-older; !errors.Is(err, lockedmemory.ErrSuperseded) && (s.err == nil || !errors.Is(err, distlock.ErrInterrupted)) {
				s.Errorf("the older message: %v; the newer one: %v", err, s.err)
			}
			if s.err != nil {
				s.maybe = nil
				s.must(s.save(s.ctx, answerer{s.sound.memory}, secret))
			}
			s.judge(distlock.ErrNotAcquired)
		}},
		row{name: "turn", covers: "LockedMemory.Turn", run: func(s *scene) {
			s.must(s.save(s.ctx, s.sound.memory, secret+" before"))
			s.sweep(s.ctx, func(ctx context.Context) error {
				return s.faulty.memory.Turn(ctx, func(ctx context.Context) error {
					if _, err := s.faulty.memory.Load(ctx, ""); err != nil {
						return err
					}
					return errors.Join(s.save(ctx, s.faulty.memory, secret+" 1"), s.save(ctx, s.faulty.memory, secret+" 2"))
				})
			})
			s.judge()
		}})
}()

// repeat makes a SaveOnce again that has failed: it is stored once then.
func (s *scene) repeat(ctx context.Context) {
	s.Helper()
	if s.err == nil {
		return
	}
	s.must(s.faulty.memory.SaveOnce(ctx, secret+"-id", secret, answer(secret)))
	s.maybe = slices.DeleteFunc(s.maybe, func(text string) bool { return text == secret })
	s.saved = append(s.saved, secret)
}

// clears is a Clear or a Delete. If its outcome is unknown, the history may be there or not.
func (s *scene) clears(ctx context.Context, clear func(context.Context) error) error {
	err := clear(ctx)
	switch {
	case err == nil:
		s.saved = nil
	case saysPerhaps(err):
		s.clear = true
	}
	return err
}

// appender is a memory whose Save is its Append.
type appender struct {
	memory *lockedmemory.LockedMemory[string, string]
}

func (a appender) Save(ctx context.Context, input, output string) error {
	return a.memory.Append(ctx, input, output)
}

// answerer is a memory whose Save is an Answer.
type answerer struct {
	memory *lockedmemory.LockedMemory[string, string]
}

func (a answerer) Save(ctx context.Context, input, output string) error {
	_, err := a.memory.Answer(ctx, secret+"-id", input, func(context.Context) ([]string, error) {
		return []string{output}, nil
	})
	return err
}

// once is a memory whose Save is a Once.
type once struct {
	memory *lockedmemory.LockedMemory[string, string]
}

func (o once) Save(ctx context.Context, input, output string) error {
	_, err := o.memory.Once(ctx, secret+"-id", func(ctx context.Context) error {
		return o.memory.SaveOnce(ctx, secret+"-id", input, output)
	})
	return err
}

// submitter is a memory whose Save is a Submit.
type submitter struct {
	memory *lockedmemory.LockedMemory[string, string]
}

func (m submitter) Save(ctx context.Context, input, output string) error {
	box, err := inbox.New(m.memory, nil)
	if err == nil {
		_, err = box.Submit(ctx, secret+"-id", input, func(context.Context, []lockedmemory.Question[string]) ([]string, error) {
			return []string{output}, nil
		})
	}
	return err
}

// replaces is a Replace of the exchange saved before. If it has failed, that exchange is there,
// unless the outcome is unknown.
func (s *scene) replaces(ctx context.Context, place lockedmemory.Place) error {
	after := secret + " after"
	err := s.faulty.memory.Replace(ctx, place, place,
		lockedmemory.Exchange[string]{Messages: []string{after, answer(after)}})
	switch {
	case err == nil:
		s.saved = []string{after}
	case saysPerhaps(err):
		s.maybe, s.saved = append(s.saved, after), nil
	}
	return err
}

// inTurn runs the swept call inside a turn. The turn's own beginning and end do not fail.
func inTurn(run func(s *scene, turn context.Context)) func(*scene) {
	return func(s *scene) {
		err := s.faulty.memory.Turn(s.ctx, func(turn context.Context) error {
			run(s, turn)
			return nil
		})
		if err != nil && !(s.point.mayLose() && errors.Is(err, distlock.ErrLost)) {
			s.Errorf("the turn: %v", err)
		}
		if s.later != nil {
			s.later()
		}
		s.judge()
	}
}

// reads are those of a memory and its store. Each expects so many exchanges, or an error and
// nothing.
var reads = map[string]func(ctx context.Context, s *scene, exchanges int) error{
	"load": func(ctx context.Context, s *scene, exchanges int) error {
		messages, err := s.faulty.memory.Load(ctx, "")
		return s.all(len(messages), 2*exchanges, err)
	},
	"search": func(ctx context.Context, s *scene, exchanges int) error {
		found, err := s.faulty.memory.Search(ctx, secret, 1000)
		return s.all(len(found), 2*exchanges, err)
	},
	"last": func(ctx context.Context, s *scene, exchanges int) error {
		found, err := s.faulty.memory.Last(ctx, 10)
		return s.all(len(found), exchanges, err)
	},
	"backward": func(ctx context.Context, s *scene, exchanges int) error {
		return s.each(s.faulty.memory.Backward(ctx, lockedmemory.Place{}), exchanges)
	},
	"forward": func(ctx context.Context, s *scene, exchanges int) error {
		return s.each(s.faulty.memory.Forward(ctx, lockedmemory.Place{}), exchanges)
	},
	"answered": func(ctx context.Context, s *scene, _ int) error {
		found, _, err := s.faulty.memory.Answered(ctx, "never")
		return s.all(len(found.Messages), 0, err)
	},
	"sessions": func(ctx context.Context, s *scene, _ int) error {
		n := 0
		for name, err := range s.faulty.memory.Sessions(ctx) {
			if err != nil {
				return s.all(0, 1, err)
			}
			if name == s.key {
				n = 1
			}
		}
		return s.all(n, 1, nil)
	},
	"pending": func(ctx context.Context, s *scene, _ int) error {
		defer s.pends()()
		pending, err := s.faulty.memory.Pending(ctx)
		return s.all(len(pending), 1, err)
	},
	"inboxes": func(ctx context.Context, s *scene, _ int) error {
		defer s.pends()()
		n := 0
		for name, err := range s.faulty.memory.Inboxes(ctx) {
			if err != nil {
				return s.all(0, 1, err)
			}
			if name == s.key {
				n = 1
			}
		}
		return s.all(n, 1, nil)
	},
	"ping": func(ctx context.Context, s *scene, _ int) error {
		_, err := s.faulty.memory.Ping(ctx)
		return err
	},
}

// pends puts a question. over closes it, or all scenes would list it.
func (s *scene) pends() (over func()) {
	s.must(s.sound.memory.Put(s.ctx, "never", secret))
	return func() {
		_, _, _, err := s.sound.store.CloseMessage(s.ctx, storedriver.HashID("never"), "", 0, 0, 0)
		s.must(err)
	}
}

func (s *scene) each(found iter.Seq2[lockedmemory.Exchange[string], error], exchanges int) error {
	n := 0
	for _, err := range found {
		if err != nil {
			return s.all(n, exchanges, err)
		}
		n++
	}
	return s.all(n, exchanges, nil)
}

func (s *scene) all(got, want int, err error) error {
	if err == nil && got != want || err != nil && got != 0 {
		s.Errorf("%d were read, want %d: %v", got, want, err)
	}
	return err
}
