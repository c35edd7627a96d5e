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
