package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

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
