package lockedmemory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

func TestSessionKey_isTheInnermostSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		m, err := lockedmemory.New(s.inner, s.locker, lockedmemory.SessionKey, nil)
		must(t, err)
		if err := m.Save(t.Context(), "q", "a"); !errors.Is(err, distlock.ErrInvalidKey) {
			t.Errorf("Save without a session: %v", err)
		}
		key := func(ctx context.Context) (key string) {
			must(t, m.Turn(ctx, func(ctx context.Context) error {
				lease, _ := lockedmemory.Lease(ctx)
				key = lease.Key()
				return nil
			}))
			return key
		}
		one := lockedmemory.WithSession(t.Context(), "one")
		if got := key(one); got != "one" {
			t.Errorf("the key is %q", got)
		}
		if got := key(lockedmemory.WithSession(one, "other")); got != "other" {
			t.Errorf("the key of a session within a session is %q", got)
		}
	})
}

func TestTurnValue_returnsValueAndError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		failed := errors.New("failed")
		for _, want := range []error{nil, failed} {
			answer, err := lockedmemory.TurnValue(t.Context(), s.a, func(ctx context.Context) (string, error) {
				if _, ok := s.locker.FromContext(ctx, session); !ok {
					t.Error("the context has no lease")
				}
				return "answer", want
			})
			if answer != "answer" || err != want {
				t.Errorf("%q, %v; want %v", answer, err, want)
			}
		}
		held, err := s.locker.Acquire(t.Context(), session)
		must(t, err)
		answer, err := lockedmemory.TurnValue(t.Context(), s.b, func(context.Context) (string, error) {
			return "answer", nil
		}, distlock.WithWait(1))
		if answer != "" || !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("of a busy session: %q, %v", answer, err)
		}
		must(t, held.Release(t.Context()))
	})
}
