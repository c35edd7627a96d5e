package lockedmemory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/lockedmemory"
)

// ops is an Observer that remembers the memory's operations.
type ops struct {
	mu   sync.Mutex
	seen []distlock.Operation
}

func (o *ops) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (o *ops) End(_ context.Context, op *distlock.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.HasPrefix(op.Name, "lockedmemory.") {
		o.seen = append(o.seen, *op)
	}
}

func down(f *drivertest.Faults) {
	f.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errBroken} })
}

func TestFailOpen_C_runsUnlockedAndReportsIt(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(context.Context, *lockedmemory.LockedMemory[string, int]) error
		want []string
		ops  []string
	}{
		"Save": {
			func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
				return m.Save(ctx, "q", "a")
			},
			[]string{"q", "a"}, []string{lockedmemory.OpSave},
		},
		"Clear": {
			func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error { return m.Clear(ctx) },
			nil, []string{lockedmemory.OpClear},
		},
		"Turn": {
			func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
				return m.Turn(ctx, func(ctx context.Context) error {
					if _, err := m.Load(ctx, ""); err != nil {
						return err
					}
					return m.Turn(ctx, func(ctx context.Context) error { return m.Save(ctx, "q", "a") })
				})
			},
			[]string{"q", "a"},
			[]string{lockedmemory.OpLoad, lockedmemory.OpSave, lockedmemory.OpTurn, lockedmemory.OpTurn},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				var log bytes.Buffer
				observer := &ops{}
				s := newSetup(t, distlock.Options{Observer: observer, Logger: slog.New(slog.NewTextHandler(&log, nil))},
					&lockedmemory.Options{FailOpen: true})
				down(s.faults)
				must(t, c.run(t.Context(), s.a))
				if !slices.Equal(s.inner.messages, c.want) {
					t.Errorf("the memory has %q", s.inner.messages)
				}
				var names []string
				for _, op := range observer.seen {
					names = append(names, op.Name)
					if !op.Unlocked || op.Outcome != distlock.OutcomeDone {
						t.Errorf("the Observer saw %+v", op)
					}
				}
				if !slices.Equal(names, c.ops) {
					t.Errorf("the Observer saw %q", names)
				}
				synctest.Wait()
				text := log.String()
				if !strings.Contains(text, "without the lock") || !strings.Contains(text, "unlocked=true") ||
					strings.Contains(text, session) {
					t.Errorf("the log says %q", text)
				}
				if n := s.faults.Calls(drivertest.Acquire); n != 1 {
					t.Errorf("the service was asked %d times", n)
				}
				for _, ctx := range s.inner.seen {
					if _, ok := lockedmemory.Lease(ctx); ok {
						t.Error("the inner memory is shown a lease")
					}
				}
			})
		})
	}
}

func TestFailOpen_C_isOffByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		down(s.faults)
		turn := s.a.Turn(t.Context(), func(context.Context) error { t.Error("ran"); return nil })
		for _, err := range []error{s.a.Save(t.Context(), "q", "a"), s.a.Clear(t.Context()), turn} {
			if !errors.Is(err, distlock.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		}
		if len(s.inner.messages) > 0 {
			t.Errorf("written without a lock: %q", s.inner.messages)
		}
	})
}

// A busy lock, a lost lease and a caller that has left are no outage.
func TestFailOpen_C_onlyForUnavailable(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true, Wait: time.Second})
		err := s.b.Turn(t.Context(), func(context.Context) error {
			if err := s.a.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrNotAcquired) {
				t.Errorf("Save beside a turn: %v", err)
			}
			return s.a.Turn(t.Context(), func(context.Context) error { t.Error("ran"); return nil })
		})
		if !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("Turn beside a turn: %v", err)
		}
		err = s.a.Turn(t.Context(), func(ctx context.Context) error {
			down(s.faults)
			time.Sleep(time.Minute)
			return s.a.Save(ctx, "q", "a")
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Save under a lost lease: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.a.Save(ctx, "q", "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("Save for a caller that is gone: %v", err)
		}
		if len(s.inner.messages) > 0 {
			t.Errorf("the memory has %q", s.inner.messages)
		}
	})
}

// A failure of the inner memory, or of a caller with too little time, repeats no write.
func TestFailOpen_C_writesNothingTwiceNorTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		calls := 0
		inner := func(context.Context) error { calls++; return distlock.ErrUnavailable }
		if err := s.a.Turn(t.Context(), inner); !errors.Is(err, distlock.ErrUnavailable) || calls != 1 {
			t.Errorf("Turn: %v, its work ran %d times", err, calls)
		}
		s.inner.fail = distlock.ErrUnavailable
		if err := s.a.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrUnavailable) || len(s.inner.seen) != 1 {
			t.Errorf("Save: %v, tried %d times", err, len(s.inner.seen))
		}
		s.inner.fail = nil
		// The caller leaves while the backend answers that it cannot for now.
		s.faults.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: driver.ErrTemporary} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.a.Save(ctx, "q", "a")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, distlock.ErrUnavailable) ||
			len(s.inner.messages) > 0 {
			t.Errorf("Save: %v, and the memory has %q", err, s.inner.messages)
		}
	})
}

// A write without the lock inside another session's turn does not run under that session's lease.
func TestFailOpen_S2_showsNoLeaseOfAnotherSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		other, err := lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey("another"),
			&lockedmemory.Options{FailOpen: true})
		must(t, err)
		err = s.a.Turn(t.Context(), func(ctx context.Context) error {
			if lease, ok := lockedmemory.Lease(ctx); !ok || lease.Key() != session {
				t.Errorf("the turn runs under %v", lease)
			}
			down(s.faults)
			defer s.faults.Inject(nil)
			return other.Save(ctx, "q", "a")
		})
		must(t, err)
		for _, ctx := range s.inner.seen {
			if lease, ok := lockedmemory.Lease(ctx); ok {
				t.Errorf("the inner memory is shown the lease of %q", lease.Key())
			}
		}
	})
}

// The writes of a turn without the lock do not overlap, and end with the turn.
func TestFailOpen_keepsATurnsWritesTogether(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		s.inner.pause = time.Second
		down(s.faults)
		var after context.Context
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			after = ctx
			saved := make(chan error)
			go func() { saved <- s.a.Save(ctx, "q1", "a1") }()
			time.Sleep(time.Millisecond)
			brief, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			if err := s.a.Save(brief, "never", "never"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a write that cannot wait: %v", err)
			}
			return errors.Join(s.a.Save(ctx, "q2", "a2"), <-saved)
		})
		if err != nil || !slices.Equal(s.inner.messages, []string{"q1", "a1", "q2", "a2"}) {
			t.Errorf("the memory has %q, %v", s.inner.messages, err)
		}
		_, loaded := s.a.Load(after, "")
		turn := s.a.Turn(after, func(context.Context) error { t.Error("ran"); return nil })
		for _, err := range []error{s.a.Save(after, "q", "a"), turn, loaded} {
			if !errors.Is(err, distlock.ErrNotHeld) {
				t.Errorf("after the turn: %v", err)
			}
		}
	})
}

type fenced struct{ history }

func (*fenced) Fenced() bool { return true }

func TestNew_refusesFailOpenForAFencedMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		_, err := lockedmemory.New(&fenced{}, s.locker, lockedmemory.FixedKey(session), &lockedmemory.Options{FailOpen: true})
		if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "leave FailOpen off") {
			t.Errorf("New: %v", err)
		}
		if _, err := lockedmemory.New(&fenced{}, s.locker, lockedmemory.FixedKey(session), nil); err != nil {
			t.Errorf("New without FailOpen: %v", err)
		}
	})
}

// FailOpen is the choice of each memory, not of the session.
func TestFailOpen_C_doesNotReachAnotherMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		inner := &fenced{}
		strict, err := lockedmemory.New(inner, s.locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		down(s.faults)
		err = s.a.Turn(t.Context(), func(ctx context.Context) error { return strict.Save(ctx, "q", "a") })
		if !errors.Is(err, distlock.ErrUnavailable) || len(inner.messages) > 0 {
			t.Errorf("%v; the memory without FailOpen has %q", err, inner.messages)
		}
	})
}

// A service that has just named a holder, or that answers but will not, is not away.
func TestFailOpen_C_isNotForAServiceThatAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		first bool // the first answer comes
		then  error
		want  error
	}{
		"it has named a holder":     {true, errBroken, distlock.ErrUnavailable},
		"it lacks a right":          {false, fmt.Errorf("no: %w", driver.ErrRefused), distlock.ErrRefused},
		"it finds data of another":  {false, fmt.Errorf("no: %w", driver.ErrForeign), distlock.ErrRefused},
		"it lacks a right later on": {true, fmt.Errorf("no: %w", driver.ErrRefused), distlock.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newSetup(t, distlock.Options{Wait: time.Second}, &lockedmemory.Options{FailOpen: true})
				err := s.b.Turn(t.Context(), func(context.Context) error {
					before := s.faults.Calls(drivertest.Acquire)
					s.faults.Inject(func(call drivertest.Call) drivertest.Fault {
						if call.Op == drivertest.Acquire && !(c.first && call.N == before) {
							return drivertest.Fault{Before: c.then}
						}
						return drivertest.Fault{}
					})
					return s.a.Save(t.Context(), "q", "a")
				})
				if !errors.Is(err, c.want) || len(s.inner.messages) > 0 {
					t.Errorf("Save: %v; the memory has %q", err, s.inner.messages)
				}
			})
		})
	}
}

// As under a lease, no write begins for a caller that has left. 20 writes leave nothing to chance.
func TestFailOpen_C_endedContextInATurn_noWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		down(s.faults)
		must(t, s.a.Turn(t.Context(), func(ctx context.Context) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			for range 20 {
				if err := s.a.Save(ended, "q", "a"); !errors.Is(err, context.Canceled) {
					t.Errorf("Save: %v", err)
				}
			}
			return nil
		}))
		if len(s.inner.messages) > 0 {
			t.Errorf("the memory has %q", s.inner.messages)
		}
	})
}

// A decorator over a decorator: the inner one's write is part of the outer one's.
func TestFailOpen_aWriteWithinAWriteDoesNotWaitForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		outer, err := lockedmemory.New[string, int](s.a, s.locker, lockedmemory.FixedKey(session),
			&lockedmemory.Options{FailOpen: true})
		must(t, err)
		down(s.faults)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = outer.Turn(ctx, func(ctx context.Context) error { return outer.Save(ctx, "q", "a") })
		if err != nil || time.Since(start) > 0 || !slices.Equal(s.inner.messages, []string{"q", "a"}) {
			t.Errorf("%v after %s; the memory has %q", err, time.Since(start), s.inner.messages)
		}
	})
}

// An invalid call and a closed Locker are no outage.
func TestFailOpen_C_notForAnInvalidCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
		unnamed, err := lockedmemory.New[string, int](s.inner, s.locker, lockedmemory.FixedKey("a\x00b"),
			&lockedmemory.Options{FailOpen: true})
		must(t, err)
		if err := unnamed.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrInvalidKey) {
			t.Errorf("with a bad key: %v", err)
		}
		must(t, s.locker.Close(t.Context()))
		if err := s.a.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if len(s.inner.messages) > 0 {
			t.Errorf("the memory has %q", s.inner.messages)
		}
	})
}

// Inside a turn without the lock, another memory may have taken the lock. A write under that lease is part
// of it.
func TestFailOpen_leaseInsideTheTurn_isJoined(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		observer := &ops{}
		s := newSetup(t, distlock.Options{Observer: observer}, &lockedmemory.Options{FailOpen: true})
		strict := s.of(t, session, nil)
		down(s.faults)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			s.faults.Inject(nil)
			return strict.Turn(ctx, func(ctx context.Context) error { return s.a.Save(ctx, "q", "a") })
		})
		must(t, err)
		if lease, ok := lockedmemory.Lease(s.inner.seen[0]); !ok || lease.Key() != session {
			t.Error("the write had no lease")
		}
		if save := observer.seen[0]; save.Name != lockedmemory.OpSave || save.Unlocked {
			t.Errorf("the Observer saw %+v", save)
		}
	})
}

// An outage comes with each call. The log says how many lines it lacks.
func TestFailOpen_10000Calls_linesBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSetup(t, distlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			&lockedmemory.Options{FailOpen: true})
		notDone := fmt.Errorf("%w: %w", driver.ErrNotDone, errBroken) // so there is nothing to clean up
		s.faults.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: notDone} })
		for range 10_000 {
			must(t, s.a.Clear(t.Context()))
		}
		time.Sleep(time.Minute)
		must(t, s.a.Clear(t.Context()))
		synctest.Wait()
		if n := strings.Count(log.String(), "without the lock"); n != 11 ||
			strings.Count(log.String(), "left_out=9990") != 1 {
			t.Errorf("%d lines, want 11, the last with left_out=9990: %.3000s", n, &log)
		}
	})
}
