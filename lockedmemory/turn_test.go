package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/lockedmemory"
)

func TestTurn_S1_coversLoadAndSave(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{Wait: time.Millisecond}, nil) // a Turn waits by its own rule
		var wg sync.WaitGroup
		for i := range 10 {
			m := []*lockedmemory.LockedMemory[string, int]{s.a, s.b}[i%2]
			wg.Add(1)
			go func() {
				defer wg.Done()
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
			}()
		}
		wg.Wait()
		for _, ctx := range s.inner.seen {
			if lease, ok := lockedmemory.Lease(ctx); !ok || lease.Key() != session {
				t.Error("a call inside a turn has no lease")
			}
		}
	})
}

func TestTurn_waitIsBoundedByTurnWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{TurnWait: time.Minute})
		if _, err := s.locker.Acquire(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err := s.b.Turn(t.Context(), func(context.Context) error { t.Error("ran"); return nil })
		if !errors.Is(err, distlock.ErrNotAcquired) || time.Since(start) != time.Minute {
			t.Errorf("Turn: %v after %s", err, time.Since(start))
		}
	})
}

func TestTurn_insideATurnJoinsIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			return s.a.Turn(ctx, func(ctx context.Context) error { return s.a.Save(ctx, "q", "a") })
		})
		if err != nil {
			t.Errorf("Turn: %v", err)
		}
		if n := s.faults.Calls(drivertest.Acquire); n != 1 {
			t.Errorf("%d locks for one turn", n)
		}
	})
}

func TestTurn_savesInsideItAreSerialised(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		s.inner.pause = time.Millisecond
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					name := string(rune('a' + i))
					if err := s.a.Save(ctx, name, strings.ToUpper(name)); err != nil {
						t.Errorf("Save: %v", err)
					}
				}()
			}
			wg.Wait()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(s.inner.messages); i += 2 {
			if strings.ToUpper(s.inner.messages[i]) != s.inner.messages[i+1] {
				t.Fatalf("torn at %d: %q", i, s.inner.messages)
			}
		}
	})
}

func TestTurn_afterItsEndItsContextWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		var kept context.Context
		if err := s.a.Turn(t.Context(), func(ctx context.Context) error { kept = context.WithoutCancel(ctx); return nil }); err != nil {
			t.Fatal(err)
		}
		for call, err := range map[string]error{
			"Save":   s.a.Save(kept, "q", "a"),
			"Clear":  s.a.Clear(kept),
			"Load":   second(s.a.Load(kept, "")),
			"Search": second(s.a.Search(kept, "", 1)),
		} {
			if !errors.Is(err, distlock.ErrNotHeld) || strings.Contains(err.Error(), "may or may not") {
				t.Errorf("%s after the turn: %v, want ErrNotHeld", call, err)
			}
		}
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			s.faults.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errBroken} })
			defer s.faults.Inject(nil)
			time.Sleep(time.Hour)
			return s.a.Save(ctx, "q", "a")
		})
		if !errors.Is(err, distlock.ErrLost) || strings.Contains(err.Error(), "may or may not") {
			t.Errorf("Save under a lost lease: %v", err)
		}
		if len(s.inner.seen) != 0 {
			t.Error("the inner memory was called")
		}
	})
}

func TestObserver_isToldOfMemoryOperations(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var (
			mu    sync.Mutex
			names []string
		)
		s := newSetup(t, distlock.Options{Observer: onEnd(func(op *distlock.Operation) {
			mu.Lock()
			defer mu.Unlock()
			if op.Key != session || op.Backend != "memory" {
				t.Errorf("%+v", op)
			}
			names = append(names, op.Name+" "+string(op.Outcome))
		})}, nil)
		_ = s.a.Turn(t.Context(), func(ctx context.Context) error { return s.a.Save(ctx, "q", "a") })
		_ = s.a.Clear(t.Context())
		s.inner.fail = errInner
		_ = s.a.Clear(t.Context())
		want := []string{
			"distlock.acquire acquired", "lockedmemory.save done", "distlock.release done", "lockedmemory.turn done",
			"distlock.acquire acquired", "distlock.release done", "lockedmemory.clear done",
			"distlock.acquire acquired", "distlock.release done", "lockedmemory.clear failed",
		}
		if !slices.Equal(names, want) {
			t.Errorf("told of %q, want %q", names, want)
		}
	})
}

func TestLease_ofAnotherSessionIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		other, err := lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey("another session"), nil)
		if err != nil {
			t.Fatal(err)
		}
		nameless, err := lockedmemory.New(s.inner, s.locker, lockedmemory.FixedKey(""), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = s.a.Turn(t.Context(), func(ctx context.Context) error {
			return errors.Join(second(other.Load(ctx, "")), second(nameless.Search(ctx, "", 1)))
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, ctx := range s.inner.seen {
			if lease, ok := lockedmemory.Lease(ctx); ok {
				t.Errorf("a read of another session is shown the lease for %q", lease.Key())
			}
		}
	})
}

func TestObserver_aTimeoutOfTheInnerMemoryIsAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var outcome distlock.Outcome
		s := newSetup(t, distlock.Options{Observer: onEnd(func(op *distlock.Operation) {
			if op.Name == lockedmemory.OpSave {
				outcome = op.Outcome
			}
		})}, nil)
		s.inner.fail = context.DeadlineExceeded // the database's
		_ = s.a.Save(t.Context(), "q", "a")
		if outcome != distlock.OutcomeFailed {
			t.Errorf("outcome %q", outcome)
		}
	})
}
