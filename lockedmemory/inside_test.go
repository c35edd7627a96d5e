package lockedmemory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
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
