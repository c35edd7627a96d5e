package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

func TestTurn_S1_coversLoadAndSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: time.Millisecond}, nil) // a Turn waits by its own rule
		var wg sync.WaitGroup
		for i := range 10 {
			m := []locked{s.a, s.b}[i%2]
			wg.Go(func() {
				err := m.Turn(t.Context(), func(ctx context.Context) error {
					before, err := m.Load(ctx, "")
					if err != nil {
						return err
					}
					time.Sleep(10 * time.Second) // the model
					if err := m.Save(ctx, "q", "a"); err != nil {
						return err
					}
					after, err := m.Load(ctx, "")
					if len(after) != len(before)+2 {
						t.Errorf("%d messages before the turn, %d after it", len(before), len(after))
					}
					return err
				})
				if err != nil {
					t.Errorf("Turn: %v", err)
				}
			})
		}
		wg.Wait()
		for _, ctx := range s.inner.seen {
			if lease, ok := lockedmemory.Lease(ctx); !ok || lease.Key() != session {
				t.Error("a call inside a turn has no lease")
			}
		}
	})
}

// Turn, Save and Clear wait as long as Options.Wait says. The Locker's own wait has no effect.
func TestWait_L_boundsTurnSaveAndClear(t *testing.T) {
	for name, c := range map[string]struct{ wait, want time.Duration }{
		"default":   {0, 5 * time.Minute},
		"own":       {time.Minute, time.Minute},
		"ctx alone": {-1, time.Hour},
	} {
		for call := range calls(t, nil) {
			for policy, busy := range map[string]lockedmemory.BusyPolicy{"": lockedmemory.Queue, "/refuse": lockedmemory.Refuse} {
				t.Run(call+"/"+name+policy, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := newSetup(t, distlock.Options{Wait: time.Second}, &lockedmemory.Options{Wait: c.wait, Busy: busy})
						must(t, second(s.locker.Acquire(t.Context(), session)))
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						want := c.want
						if call == "Turn" && busy == lockedmemory.Refuse {
							want = 0
						}
						start := time.Now()
						if err := calls(t, s.b)[call](ctx); !errors.Is(err, distlock.ErrNotAcquired) || time.Since(start) != want {
							t.Errorf("%v after %s, want %s", err, time.Since(start), want)
						}
					})
				})
			}
		}
	}
}

func TestTurn_savesInsideItAreSerialised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		s.inner.pause = time.Millisecond
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() { savesName(ctx, t, s.a, i) })
			}
			wg.Wait()
			return nil
		})
		must(t, err)
		s.inner.isWhole(t, 5)
	})
}

func TestTurn_afterItsEndItsContextWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		var kept context.Context
		must(t, s.a.Turn(t.Context(), func(ctx context.Context) error { kept = context.WithoutCancel(ctx); return nil }))
		for call, err := range map[string]error{
			"Save":   s.a.Save(kept, "q", "a"),
			"Clear":  s.a.Clear(kept),
			"Load":   second(s.a.Load(kept, "")),
			"Search": second(s.a.Search(kept, "", 1)),
		} {
			if !errors.Is(err, distlock.ErrNotHeld) || errors.Is(err, distlock.ErrOutcomeUnknown) {
				t.Errorf("%s after the turn: %v, want ErrNotHeld", call, err)
			}
		}
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			down(s.faults)
			defer s.faults.Inject(nil)
			time.Sleep(time.Hour)
			for call, err := range map[string]error{
				"Clear":  s.a.Clear(ctx),
				"Turn":   s.a.Turn(ctx, func(context.Context) error { t.Error("ran"); return nil }),
				"Load":   second(s.a.Load(ctx, "")),
				"Search": second(s.a.Search(ctx, "", 1)),
			} {
				if !errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrOutcomeUnknown) {
					t.Errorf("%s under a lost lease: %v, want ErrLost", call, err)
				}
			}
			return s.a.Save(ctx, "q", "a")
		})
		if !errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("Save under a lost lease: %v", err)
		}
		if len(s.inner.seen) != 0 {
			t.Error("the inner memory was called")
		}
	})
}

func TestTurn_S1_ofAnotherSessionInsideHasItsOwnLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		other := s.of(t, "another", nil)
		began, waited := make(chan struct{}), make(chan time.Duration, 2)
		for _, m := range []locked{s.b, other} { // s.b is of the outer session
			go func() {
				<-began
				start := time.Now()
				if err := m.Turn(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Errorf("a turn that waits: %v", err)
				}
				waited <- time.Since(start)
			}()
		}
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			err := other.Turn(ctx, func(ctx context.Context) error {
				if lease, ok := lockedmemory.Lease(ctx); !ok || lease.Key() != "another" {
					t.Errorf("the inner turn runs under %v", lease)
				}
				close(began)
				time.Sleep(time.Minute)
				// Each Save runs under the lease of its session.
				return errors.Join(other.Save(ctx, "q", "a"), s.a.Save(ctx, "q", "a"))
			})
			time.Sleep(time.Minute)
			return err
		})
		must(t, err)
		var keys []string
		for _, ctx := range s.inner.seen {
			lease, _ := lockedmemory.Lease(ctx)
			keys = append(keys, lease.Key())
		}
		if want := []string{"another", session}; !slices.Equal(keys, want) {
			t.Errorf("saved under the leases of %q, want %q", keys, want)
		}
		if inner, outer := <-waited, <-waited; inner != time.Minute || outer != 2*time.Minute {
			t.Errorf("the sessions were busy for %s and %s", inner, outer)
		}
	})
}

func TestObserver_seesMemoryOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		_ = s.a.Turn(t.Context(), func(ctx context.Context) error { return s.a.Save(ctx, "q", "a") })
		_ = s.a.Clear(t.Context())
		s.inner.fail = errInner
		_ = s.a.Clear(t.Context())
		s.observer.saw(t, "",
			"distlock.acquire acquired", "lockedmemory.save done", "distlock.release done", "lockedmemory.turn done",
			"distlock.acquire acquired", "distlock.release done", "lockedmemory.clear done",
			"distlock.acquire acquired", "distlock.release done", "lockedmemory.clear failed")
	})
}

func TestLease_ofAnotherSessionIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		other, nameless := s.of(t, "another session", nil), s.of(t, "", nil)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			return errors.Join(second(other.Load(ctx, "")), second(nameless.Search(ctx, "", 1)))
		})
		must(t, err)
		for _, ctx := range s.inner.seen {
			if lease, ok := lockedmemory.Lease(ctx); ok {
				t.Errorf("a read of another session is shown the lease for %q", lease.Key())
			}
		}
	})
}

// An error of the inner memory names two outcomes at most. Any other text would reach the spans.
func TestObserver_errorOfTheInnerMemory_outcome(t *testing.T) {
	for err, want := range map[error]distlock.Outcome{
		context.DeadlineExceeded:          distlock.OutcomeFailed, // the database's
		outcomeError("done"):              distlock.OutcomeFailed,
		outcomeError("message of a user"): distlock.OutcomeFailed,
		outcomeError("stale"):             distlock.OutcomeStale,
		outcomeError("conflict"):          distlock.OutcomeConflict,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t, distlock.Options{}, nil)
			s.inner.fail = err
			_ = s.a.Save(t.Context(), "q", "a")
			s.observer.saw(t, lockedmemory.OpSave, lockedmemory.OpSave+" "+string(want))
		})
	}
}

// outcomeError is an error that names its outcome.
type outcomeError string

func (e outcomeError) Error() string             { return string(e) }
func (e outcomeError) Outcome() distlock.Outcome { return distlock.Outcome(e) }

// A Turn takes call options; its WithWait is for it alone.
func TestTurn_takesCallOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			info, err := s.locker.Inspect(ctx, session)
			if err != nil || info.TTL != time.Minute {
				t.Errorf("the lock lasts for %s, %v", info.TTL, err)
			}
			start := time.Now()
			ran := func(context.Context) error { t.Error("ran"); return nil }
			err = s.b.Turn(t.Context(), ran, distlock.WithWait(time.Second))
			if !errors.Is(err, distlock.ErrNotAcquired) || time.Since(start) != time.Second {
				t.Errorf("Turn beside a turn: %v after %s", err, time.Since(start))
			}
			return nil
		}, distlock.WithTTL(time.Minute))
		must(t, err)
	})
}

// A call with the outer context waits for its own turn: the error, after the wait, names the process.
func TestTurn_L_outerContext_failsAfterItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		hasty := s.of(t, session, &lockedmemory.Options{Wait: 3 * time.Second})
		err := s.a.Turn(t.Context(), func(context.Context) error {
			for name, call := range calls(t, hasty) {
				start := time.Now()
				err := call(t.Context())
				var busy *distlock.BusyError
				if took := time.Since(start); !errors.As(err, &busy) || !busy.ThisProcess || busy.Self || took != 3*time.Second {
					t.Errorf("%s: %v after %s, want a BusyError of this process after the wait", name, err, took)
				}
			}
			return nil
		})
		must(t, errors.Join(err, hasty.Save(t.Context(), "q", "a"))) // the turn is over
	})
}

// marking is an Observer that marks the contexts of its operations.
type marking struct{ ops }

type markKey struct{}

func (*marking) Start(ctx context.Context, op *distlock.Operation) context.Context {
	return context.WithValue(ctx, markKey{}, op.Name)
}

func TestLoad_isObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := &marking{}
		s := newSetup(t, distlock.Options{Observer: observer}, nil)
		must(t, second(s.a.Load(t.Context(), "")))
		var turn context.Context
		must(t, s.a.Turn(t.Context(), func(ctx context.Context) error {
			turn = ctx
			return second(s.a.Load(ctx, ""))
		}))
		for _, ctx := range s.inner.seen {
			if ctx.Value(markKey{}) != lockedmemory.OpLoad {
				t.Errorf("the inner Load ran under %v", ctx.Value(markKey{}))
			}
		}
		s.inner.fail = errInner
		if err := second(s.a.Load(t.Context(), "")); err != errInner {
			t.Errorf("Load: %v", err)
		}
		if err := second(s.a.Load(turn, "")); !errors.Is(err, distlock.ErrNotHeld) {
			t.Errorf("Load after its turn: %v", err)
		}
		s.inner.fail = context.Canceled
		_ = second(s.a.Load(t.Context(), ""))
		func() {
			defer func() { _ = recover() }()
			memory, err := lockedmemory.New(&panicking{}, s.locker, lockedmemory.FixedKey(session), nil)
			must(t, err)
			_ = second(memory.Load(t.Context(), ""))
		}()
		var seen []string
		for _, op := range observer.seen {
			if op.Name == lockedmemory.OpLoad {
				seen = append(seen, string(op.Outcome))
				if op.Key != session || op.Backend != "memory" || op.Wait != 0 || op.Exchanges != 0 {
					t.Errorf("the Observer saw %+v", op)
				}
			}
		}
		if want := []string{"done", "done", "failed", "lost", "cancelled", "failed"}; !slices.Equal(seen, want) {
			t.Errorf("the Observer saw %q, want %q", seen, want)
		}
	})
}

// panicking is a memory whose Load panics.
type panicking struct{ history }

func (*panicking) Load(context.Context, string) ([]string, error) { panic("load") }

// The inner memory decides whether a Load needs a session.
func TestLoad_withoutSession_notObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		s.inner.messages = []string{"q", "a"}
		for name, key := range map[string]lockedmemory.KeyFunc{
			"no session":  lockedmemory.FixedKey(""),
			"failed":      func(context.Context) (string, error) { return "", errInner },
			"failed late": func(context.Context) (string, error) { return session, errInner },
		} {
			memory, err := lockedmemory.New(s.inner, s.locker, key, nil)
			must(t, err)
			if messages, err := memory.Load(t.Context(), ""); err != nil || len(messages) != 2 {
				t.Errorf("%s: %q, %v", name, messages, err)
			}
		}
		if len(s.observer.seen) > 0 {
			t.Errorf("the Observer saw %+v", s.observer.seen)
		}
	})
}
