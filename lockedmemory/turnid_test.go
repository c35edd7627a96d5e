package lockedmemory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// numbered is a memory that numbers the Saves of a turn, as a store does.
type numbered struct {
	history
	stored map[string]int // per ID
	saved  []string
}

func (n *numbered) Save(ctx context.Context, input, _ string) error {
	turn, ok := lockedmemory.TurnID(ctx)
	if !ok {
		n.saved = append(n.saved, input)
		return n.fail
	}
	number, known := turn.Next()
	if !known {
		turn.Resume(n.stored[turn.ID])
		number, _ = turn.Next()
	}
	n.saved = append(n.saved, fmt.Sprintf("%s: %s %d", input, turn.ID, number))
	if n.fail == nil {
		n.stored[turn.ID] = max(n.stored[turn.ID], number)
		turn.Stored(number)
	}
	return n.fail
}

// named is a context with a turn ID.
func named(ctx context.Context, id string) context.Context { return lockedmemory.WithTurnID(ctx, id) }

// numbering has the memory a of a session, the memory b of another one, and one inner memory under both.
type numbering struct {
	*testing.T
	inner *numbered
	a, b  *lockedmemory.LockedMemory[string, int]
}

func (n *numbering) save(ctx context.Context, text string) {
	n.Helper()
	if err := n.a.Save(ctx, text, ""); err != n.inner.fail {
		n.Errorf("Save of %s: %v", text, err)
	}
}

// refused checks that a call of the memory a has written nothing.
func (n *numbering) refused(what string, call func() error) {
	n.Helper()
	before := len(n.inner.saved)
	if err := call(); !errors.Is(err, lockedmemory.ErrTurnID) || distlock.OutcomeOf(err) != distlock.OutcomeFailed {
		n.Errorf("%s: %v", what, err)
	}
	if len(n.inner.saved) != before {
		n.Errorf("%s: saved was %q", what, n.inner.saved[before:])
	}
}

func (n *numbering) turn(m *lockedmemory.LockedMemory[string, int], ctx context.Context, fn func(ctx context.Context)) {
	n.Helper()
	must(n.T, m.Turn(ctx, func(ctx context.Context) error { fn(ctx); return nil }))
}

// An ID given to a Turn numbers the turn's Saves. A Save on its own is a turn of one Save.
func TestTurnID_O_numbersOfSaves(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(n *numbering, ctx context.Context)
		want []string
	}{
		"no ID": {func(n *numbering, ctx context.Context) { n.save(ctx, "p") }, []string{"p"}},
		"around Save": {func(n *numbering, ctx context.Context) {
			n.save(named(ctx, "x"), "p")
			n.save(named(ctx, "x"), "p")
		}, []string{"p: x 1", "p: x 1"}},
		"around Turn": {func(n *numbering, ctx context.Context) {
			n.turn(n.a, named(ctx, "x"), func(ctx context.Context) {
				n.save(ctx, "p")
				n.save(named(ctx, "x"), "q")
				n.turn(n.a, ctx, func(ctx context.Context) { n.save(ctx, "r") })
				n.turn(n.a, named(ctx, "x"), func(ctx context.Context) { n.save(ctx, "s") })
				n.refused("Save with another ID", func() error { return n.a.Save(named(ctx, "y"), "p", "") })
				n.refused("Turn with another ID", func() error {
					return n.a.Turn(named(ctx, "y"), func(ctx context.Context) error { return n.a.Save(ctx, "p", "") })
				})
				n.save(ctx, "t")
			})
		}, []string{"p: x 1", "q: x 2", "r: x 3", "s: x 4", "t: x 5"}},
		"repeated turn": {func(n *numbering, ctx context.Context) {
			for range 2 {
				n.turn(n.a, named(ctx, "x"), func(ctx context.Context) { n.save(ctx, "p"); n.save(ctx, "q") })
			}
		}, []string{"p: x 1", "q: x 2", "p: x 3", "q: x 4"}},
		"inside a turn without an ID": {func(n *numbering, ctx context.Context) {
			n.turn(n.a, ctx, func(ctx context.Context) {
				n.save(named(ctx, "x"), "p")
				n.save(ctx, "q")
				n.turn(n.a, named(ctx, "y"), func(ctx context.Context) { n.save(ctx, "r"); n.save(ctx, "s") })
				n.save(ctx, "t")
			})
		}, []string{"p: x 1", "q", "r: y 1", "s: y 2", "t"}},
		"turn of another session": {func(n *numbering, ctx context.Context) {
			n.turn(n.b, named(ctx, "x"), func(ctx context.Context) {
				n.save(ctx, "p")
				n.turn(n.a, ctx, func(ctx context.Context) { n.save(ctx, "q") })
				n.turn(n.a, named(ctx, "y"), func(ctx context.Context) {
					n.save(ctx, "r")
					must(n.T, n.b.Save(ctx, "s", ""))
				})
			})
		}, []string{"p", "q", "r: y 1", "s: x 1"}},
		"failed Saves": {func(n *numbering, ctx context.Context) {
			n.turn(n.a, named(ctx, "x"), func(ctx context.Context) {
				for _, n.inner.fail = range []error{errBroken, nil, errBroken, nil} {
					n.save(ctx, "p")
				}
			})
		}, []string{"p: x 1", "p: x 1", "p: x 2", "p: x 2"}},
		"invalid": {func(n *numbering, ctx context.Context) {
			for what, id := range map[string]string{"empty": "", "long": strings.Repeat("x", 513)} {
				n.refused(what+", Save", func() error { return n.a.Save(named(ctx, id), "p", "") })
				n.refused(what+", Turn", func() error {
					return n.a.Turn(named(ctx, id), func(context.Context) error { t.Errorf("%s: the turn was run", what); return nil })
				})
			}
			n.save(named(ctx, strings.Repeat("x", 512)), "p")
		}, []string{"p: " + strings.Repeat("x", 512) + " 1"}},
	} {
		for way, without := range map[string]bool{"with the lock": false, "without it": true} {
			t.Run(name+"/"+way, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					n := &numbering{T: t, inner: &numbered{stored: map[string]int{}}}
					s := newSetup(t, distlock.Options{}, nil)
					if without {
						down(s.faults)
					}
					for key, m := range map[string]**lockedmemory.LockedMemory[string, int]{"a": &n.a, "b": &n.b} {
						var err error
						*m, err = lockedmemory.New(n.inner, s.locker, lockedmemory.FixedKey(key), &lockedmemory.Options{FailOpen: true})
						must(t, err)
					}
					c.do(n, t.Context())
					if !slices.Equal(n.inner.saved, c.want) {
						t.Errorf("saved was %q, want %q", n.inner.saved, c.want)
					}
				})
			})
		}
	}
}

// An invalid ID is refused before the lock is asked for.
func TestTurnID_invalid_noLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		down(s.faults)
		ctx := named(t.Context(), "")
		for what, err := range map[string]error{
			"Save": s.a.Save(ctx, "q", "a"), "Turn": s.a.Turn(ctx, func(context.Context) error { return nil }),
		} {
			if !errors.Is(err, lockedmemory.ErrTurnID) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
