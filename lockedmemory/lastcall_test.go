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
	type call = func(ctx context.Context, s *setup) error
	save := func(ctx context.Context, s *setup) error { return s.a.Save(ctx, "q", "a") }
	load := func(ctx context.Context, s *setup) error { return second(s.a.Load(ctx, "")) }
	inTurn := func(inner call) call {
		return func(ctx context.Context, s *setup) error {
			return s.a.Turn(ctx, func(ctx context.Context) error { return inner(ctx, s) })
		}
	}
	inDo := func(inner call) call {
		return func(ctx context.Context, s *setup) error {
			return s.locker.Do(ctx, session, func(ctx context.Context) error { return inner(ctx, s) })
		}
	}
	saveAround := func(inner func(s *setup) lockedmemory.Memory[string, int]) call {
		return func(ctx context.Context, s *setup) error {
			m, err := lockedmemory.New(inner(s), s.locker, lockedmemory.FixedKey(session), nil)
			must(t, err)
			return m.Save(ctx, "q", "a")
		}
	}
	for name, c := range map[string]struct {
		call call
		want bool
	}{
		"Save outside a turn":  {save, true},
		"Clear outside a turn": {func(ctx context.Context, s *setup) error { return s.a.Clear(ctx) }, true},
		"Load outside a turn":  {load, false},
		"Save in a turn":       {inTurn(save), false},
		"Load in a turn":       {inTurn(load), false},
		"Save in a Do":         {inDo(save), false},
		"last Save in a Do":    {inDo(func(ctx context.Context, s *setup) error { return save(lastwrite.Announce(ctx), s) }), true},
		"Save in a turn of another Locker": {func(ctx context.Context, s *setup) error {
			other := newSetup(t, distlock.Options{}, nil)
			return other.a.Turn(ctx, func(ctx context.Context) error { return save(ctx, s) })
		}, true},
		"Save of a memory around it":        {saveAround(func(s *setup) lockedmemory.Memory[string, int] { return around{s.inner} }), false},
		"Save of a locked memory around it": {saveAround(func(s *setup) lockedmemory.Memory[string, int] { return s.a }), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, distlock.Options{}, nil)
			must(t, c.call(t.Context(), s))
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
