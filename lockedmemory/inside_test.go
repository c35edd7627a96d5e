package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/lockedmemory"
)

type locked = *lockedmemory.LockedMemory[string, int]

// of is a memory of another session, or another one of the same, over the inner memory and the Locker of a.
func (s *setup) of(t *testing.T, key string, opts *lockedmemory.Options) locked {
	t.Helper()
	m, err := lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey(key), opts)
	must(t, err)
	return m
}

// calls are the operations that take the lock, with a context.
func calls(t *testing.T, m locked) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Save":  func(ctx context.Context) error { return m.Save(ctx, "q", "a") },
		"Clear": m.Clear,
		"Turn": func(ctx context.Context) error {
			return m.Turn(ctx, func(context.Context) error { t.Error("ran"); return nil })
		},
	}
}

// refused checks that calls with ctx fail at once, because they would wait on themselves.
func (s *setup) refused(ctx context.Context, t *testing.T, m locked) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // or it would wait for ever
	defer cancel()
	for name, call := range calls(t, m) {
		start, asked, seen := time.Now(), s.faults.Calls(drivertest.Acquire), len(s.inner.seen)
		err := call(ctx)
		var busy *distlock.BusyError
		if !errors.As(err, &busy) || !busy.Self || busy.Holder == "" || !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("%s: %v, want a BusyError with Self", name, err)
			continue
		}
		if !strings.Contains(err.Error(), "use the context that the function of Do or Turn was given") {
			t.Errorf("%s does not say what to do: %v", name, err)
		}
		if took := time.Since(start); took != 0 || s.faults.Calls(drivertest.Acquire) != asked || len(s.inner.seen) != seen {
			t.Errorf("%s was refused after %s, and not before it had asked or written", name, took)
		}
	}
}

func TestTurn_L_refusesItsOuterContextAtOnce(t *testing.T) {
	type value struct{}
	for name, test := range map[string]func(ctx context.Context, t *testing.T, s *setup){
		"the outer one": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(context.Context) error { s.refused(ctx, t, s.a); return nil })
		},
		"one made from it": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(context.Context) error {
				ctx, cancel := context.WithTimeout(context.WithValue(ctx, value{}, 1), time.Hour)
				defer cancel()
				s.refused(ctx, t, s.a)
				return nil
			})
		},
		"another altogether": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(context.Context) error { s.refused(context.Background(), t, s.a); return nil })
		},
		"another memory of the session": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(context.Context) error { s.refused(ctx, t, s.of(t, session, nil)); return nil })
		},
		"far below the turn": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(context.Context) error { deep(200, func() { s.refused(ctx, t, s.a) }); return nil })
		},
		"in a turn that has joined": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(inner context.Context) error {
				_ = s.a.Turn(inner, func(context.Context) error { s.refused(ctx, t, s.a); return nil })
				s.refused(ctx, t, s.a) // still
				return nil
			})
		},
		"in a goroutine that has joined": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.a.Turn(ctx, func(inner context.Context) error {
				var wg sync.WaitGroup
				wg.Go(func() { _ = s.a.Turn(inner, func(context.Context) error { s.refused(ctx, t, s.a); return nil }) })
				wg.Wait()
				return nil
			})
		},
		"in a turn that has joined a Do": func(ctx context.Context, t *testing.T, s *setup) {
			_ = s.locker.Do(ctx, session, func(inner context.Context) error {
				return s.a.Turn(inner, func(context.Context) error { s.refused(ctx, t, s.a); return nil })
			})
		},
		"in turns of several sessions": func(ctx context.Context, t *testing.T, s *setup) {
			other := s.of(t, "another", nil)
			_ = s.a.Turn(ctx, func(inner context.Context) error {
				return other.Turn(inner, func(innermost context.Context) error {
					s.refused(ctx, t, s.a)
					s.refused(ctx, t, other)
					s.refused(inner, t, other)
					return s.a.Save(innermost, "q", "a") // which both have been given
				})
			})
		},
		"where a turn does not wait": func(ctx context.Context, t *testing.T, s *setup) {
			brusque := s.of(t, session, &lockedmemory.Options{Busy: lockedmemory.Refuse})
			_ = brusque.Turn(ctx, func(context.Context) error { s.refused(ctx, t, brusque); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newSetup(t, distlock.Options{Wait: -1}, nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				test(ctx, t, s)
				if err := s.a.Save(ctx, "q", "a"); err != nil { // it is outside now
					t.Errorf("after the turn: %v", err)
				}
			})
		})
	}
}

// In a turn whose lease is lost there is nothing to wait for, but the mistake and its error are the same.
func TestTurn_refusesItsOuterContextInALostTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{TTL: time.Second}, nil)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			s.faults.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errBroken} })
			<-ctx.Done()
			s.faults.Inject(nil)
			time.Sleep(time.Minute) // the lock is free
			s.refused(t.Context(), t, s.a)
			return nil
		})
		if !errors.Is(err, distlock.ErrLost) {
			t.Errorf("Turn: %v", err)
		}
	})
}

// A call that waits for another turn is not refused, whatever contexts the goroutines share.
func TestTurn_L_goroutinesThatShareAContextWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		ctx := t.Context()
		var wg sync.WaitGroup
		const goroutines = 40 // each of which is inside a turn of its own while it waits
		for i := range goroutines {
			own := s.of(t, fmt.Sprint("session ", i), nil)
			wg.Go(func() {
				err := own.Turn(ctx, func(context.Context) error {
					time.Sleep(time.Second)
					err := s.a.Turn(ctx, func(ctx context.Context) error {
						time.Sleep(time.Second)
						return s.a.Save(ctx, "q", "a")
					})
					time.Sleep(time.Second / 2) // in the middle of another goroutine's turn
					return errors.Join(
						err,
						s.a.Save(ctx, "q", "a"),
						s.a.Turn(ctx, func(context.Context) error { return nil }),
					)
				})
				if err != nil {
					t.Errorf("goroutine %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if n := len(s.inner.messages); n != 4*goroutines {
			t.Errorf("%d messages", n)
		}
	})
}

func TestTurn_L_otherSessionWaitsWithOuterContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		ctx := t.Context()
		other := s.of(t, "another", nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := other.Turn(ctx, func(context.Context) error { time.Sleep(time.Minute); return nil }); err != nil {
				t.Errorf("the turn of the other session: %v", err)
			}
		})
		synctest.Wait()
		start := time.Now()
		err := s.a.Turn(ctx, func(context.Context) error {
			return errors.Join(other.Save(ctx, "q", "a"), other.Turn(ctx, func(context.Context) error { return nil }))
		})
		if took := time.Since(start); err != nil || took != time.Minute {
			t.Errorf("%v after %s", err, took)
		}
		wg.Wait()
	})
}

// A goroutine that the turn has started is not part of it without its context.
func TestTurn_aGoroutineWithTheOuterContextWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: -1}, nil)
		saved := make(chan error, 1)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			go func() { saved <- s.a.Save(t.Context(), "later", "later") }()
			time.Sleep(time.Minute)
			return s.a.Save(ctx, "q", "a")
		})
		must(t, errors.Join(err, <-saved))
		if want := []string{"q", "a", "later", "later"}; !slices.Equal(s.inner.messages, want) {
			t.Errorf("the memory has %q, want %q", s.inner.messages, want)
		}
	})
}

// A turn that has panicked, or whose goroutine has ended, is over for later calls on the same stack.
func TestTurn_isOverWhenItsFunctionPanics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		other := s.of(t, "another", nil)
		err := s.a.Turn(t.Context(), func(context.Context) error {
			func() {
				defer func() {
					if recover() != "boom" {
						t.Error("the panic did not come through")
					}
				}()
				_ = other.Turn(t.Context(), func(context.Context) error { panic("boom") })
			}()
			s.refused(t.Context(), t, s.a) // it is still inside this one
			return other.Save(t.Context(), "q", "a")
		})
		if err != nil {
			t.Error(err)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = s.a.Turn(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-gone
		if err := s.a.Save(t.Context(), "q", "a"); err != nil {
			t.Errorf("after a goroutine that has ended in its turn: %v", err)
		}
	})
}

// Load takes no lock, so it has nothing to wait for.
func TestTurn_loadsWithTheOuterContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		err := s.a.Turn(t.Context(), func(context.Context) error {
			return errors.Join(second(s.a.Load(t.Context(), "")), second(s.a.Search(t.Context(), "", 1)))
		})
		if err != nil {
			t.Error(err)
		}
	})
}
