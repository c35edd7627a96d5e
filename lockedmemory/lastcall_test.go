package lockedmemory_test

import (
	"context"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/lastwrite"
	"github.com/belugalock/belugalock/lockedmemory"
)

// around has a history, and its methods.
type around struct{ *history }

func TestLastWrite_itsOwnLeaseAlone(t *testing.T) {
	save := func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
		return m.Save(ctx, "q", "a")
	}
	load := func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
		_, err := m.Load(ctx, "")
		return err
	}
	for name, c := range map[string]struct {
		call func(ctx context.Context, s *setup) error
		want bool
	}{
		"Save outside a turn":  {func(ctx context.Context, s *setup) error { return save(ctx, s.a) }, true},
		"Clear outside a turn": {func(ctx context.Context, s *setup) error { return s.a.Clear(ctx) }, true},
		"Load outside a turn":  {func(ctx context.Context, s *setup) error { return load(ctx, s.a) }, false},
		"Save in a turn": {func(ctx context.Context, s *setup) error {
			return s.a.Turn(ctx, func(ctx context.Context) error { return save(ctx, s.a) })
		}, false},
		"Load in a turn": {func(ctx context.Context, s *setup) error {
			return s.a.Turn(ctx, func(ctx context.Context) error { return load(ctx, s.a) })
		}, false},
		"Save in a Do": {func(ctx context.Context, s *setup) error {
			return s.locker.Do(ctx, session, func(ctx context.Context) error { return save(ctx, s.a) })
		}, false},
		"last Save in a Do": {func(ctx context.Context, s *setup) error {
			return s.locker.Do(ctx, session, func(ctx context.Context) error {
				return save(lastwrite.Announce(ctx), s.a)
			})
		}, true},
		"Save in a turn of another Locker": {func(ctx context.Context, s *setup) error {
			other := newSetup(t, distlock.Options{}, nil)
			return other.a.Turn(ctx, func(ctx context.Context) error { return save(ctx, s.a) })
		}, true},
		"Save of a memory around it": {func(ctx context.Context, s *setup) error {
			m, err := lockedmemory.New(around{s.inner}, s.locker, lockedmemory.FixedKey(session), nil)
			if err != nil {
				return err
			}
			return save(ctx, m)
		}, false},
		"Save of a locked memory around it": {func(ctx context.Context, s *setup) error {
			m, err := lockedmemory.New(s.a, s.locker, lockedmemory.FixedKey(session), nil)
			if err != nil {
				return err
			}
			return save(ctx, m)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, distlock.Options{}, nil)
			if err := c.call(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if len(s.inner.seen) != 1 {
				t.Fatalf("%d calls of the inner memory", len(s.inner.seen))
			}
			lease, _ := lockedmemory.Lease(s.inner.seen[0])
			if got := lastwrite.Is(lastwrite.For(s.inner.seen[0], s.inner), lease); got != c.want {
				t.Errorf("the last write: %t, want %t", got, c.want)
			}
		})
	}
}
