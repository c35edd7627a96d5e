package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// once stores the answer "a" under the ID, unless it is known.
func once(ctx context.Context, m *lockedmemory.LockedMemory[string, string], id string) ([]string, error) {
	return m.Once(ctx, id, func(ctx context.Context) error { return m.SaveOnce(ctx, id, "q", "a") })
}

func TestOnce_O_table(t *testing.T) {
	stored := []string{"q", "a"}
	for name, test := range map[string]struct {
		call   func(t *testing.T, s *stoppable) ([]string, error)
		stored []string
		err    error
	}{
		"unknown": {call: func(t *testing.T, s *stoppable) ([]string, error) { return once(t.Context(), s.memory, "id") }},
		"known, of another process": {call: func(t *testing.T, s *stoppable) ([]string, error) {
			must(t, second(once(t.Context(), s.other, "id")))
			return s.memory.Once(t.Context(), "id", func(context.Context) error { t.Error("fn was run"); return nil })
		}, stored: stored},
		"fn fails": {call: func(t *testing.T, s *stoppable) ([]string, error) {
			return s.memory.Once(t.Context(), "id", func(context.Context) error { return errInner })
		}, err: errInner},
		"stored, and the turn fails later": {call: func(t *testing.T, s *stoppable) ([]string, error) {
			return s.memory.Once(t.Context(), "id", func(ctx context.Context) error {
				return errors.Join(s.memory.SaveOnce(ctx, "id", "q", "a"), distlock.ErrLost)
			})
		}, stored: stored},
		"an invalid ID": {call: func(t *testing.T, s *stoppable) ([]string, error) {
			return once(t.Context(), s.memory, strings.Repeat("x", 513))
		}, err: lockedmemory.ErrInvalidID},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := test.call(t, newStoppable(t))
				if !slices.Equal(got, test.stored) || !errors.Is(err, test.err) || test.err == nil && err != nil {
					t.Errorf("%q, %v; want %q, %v", got, err, test.stored, test.err)
				}
			})
		})
	}
}

func TestOnce_needsAStore(t *testing.T) {
	s := newSetup(t, distlock.Options{}, nil)
	if _, err := s.a.Once(t.Context(), "id", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
