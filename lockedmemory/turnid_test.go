package lockedmemory_test

import (
	"context"
	"slices"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// The inner memory is told the ID of every Save, inside a turn and outside, with the lock and without.
func TestTurnID_reachesTheInnerMemory(t *testing.T) {
	for name, without := range map[string]bool{"with the lock": false, "without it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newSetup(t, distlock.Options{}, &lockedmemory.Options{FailOpen: true})
				if without {
					down(s.faults)
				}
				save := func(ctx context.Context) {
					t.Helper()
					if err := s.a.Save(ctx, "q", "a"); err != nil {
						t.Error(err)
					}
				}
				save(t.Context())
				save(lockedmemory.WithTurnID(t.Context(), "message 1"))
				save(lockedmemory.WithTurnID(t.Context(), ""))
				_ = s.a.Turn(lockedmemory.WithTurnID(t.Context(), "message 2"), func(ctx context.Context) error {
					save(ctx)
					save(lockedmemory.WithTurnID(ctx, "message 2, tool call 1"))
					return nil
				})
				var told []string
				for _, ctx := range s.inner.seen {
					id, ok := lockedmemory.TurnID(ctx)
					if !ok {
						id = "none"
					}
					told = append(told, id)
				}
				if want := []string{"none", "message 1", "", "message 2", "message 2, tool call 1"}; !slices.Equal(told, want) {
					t.Errorf("the inner memory was told %q, want %q", told, want)
				}
			})
		})
	}
}
