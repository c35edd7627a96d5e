package sessionstore_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// outcomes counts the operations of lockedmemory by their outcomes.
type outcomes struct {
	mu   sync.Mutex
	seen map[string]distlock.Outcome
}

func (*outcomes) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }

func (o *outcomes) End(_ context.Context, op *distlock.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[op.Name] = op.Outcome
}

// observed makes a memory over a driver that refuses writes, and reads if it is stale. It has the outcomes
// of the memory's operations.
func observed(t *testing.T, with storedriver.Outcome) (*lockedmemory.LockedMemory[string, string],
	func() map[string]distlock.Outcome) {
	t.Helper()
	d, seen := &scripted{}, &outcomes{seen: map[string]distlock.Outcome{}}
	verdict := func(a storedriver.Access) storedriver.Verdict {
		return storedriver.Verdict{Outcome: with, Mark: lockedmemory.Place{Fence: a.Fence + 1}}
	}
	d.write = func(_ context.Context, w storedriver.Write, _ effect) (storedriver.Verdict, error) {
		return verdict(w.Access), nil
	}
	d.read = func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
		if with != storedriver.Stale || r.Lease == nil {
			return d.Driver.Read(ctx, r)
		}
		v := verdict(r.Access)
		v.Replayed = true
		return storedriver.Page{Verdict: v}, nil
	}
	memory, _, _ := over(t, d, &d.Driver, &distlock.Options{Observer: seen})
	return memory, func() map[string]distlock.Outcome {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		maps.DeleteFunc(seen.seen, func(name string, _ distlock.Outcome) bool { return name[:4] == "dist" })
		return seen.seen
	}
}

// The operation of a write says that the store has refused it. A turn that returns the error does not
// say so again: the store has refused one write.
func TestWrite_refused_outcome(t *testing.T) {
	for with, want := range map[storedriver.Outcome]struct{ write, turn distlock.Outcome }{
		storedriver.Stale:    {distlock.OutcomeStale, distlock.OutcomeLost},
		storedriver.Conflict: {distlock.OutcomeConflict, distlock.OutcomeFailed},
	} {
		memory, seen := observed(t, with)
		ctx := t.Context()
		one := lockedmemory.Place{Fence: 1, N: 1}
		err := errors.Join(memory.Save(ctx, "q", "a"), memory.Append(ctx, "q"),
			memory.SaveOnce(ctx, "id", "q"), memory.Clear(ctx),
			memory.Replace(ctx, one, one), memory.Delete(ctx))
		if err == nil {
			t.Fatal("each write was stored")
		}
		expect(t, seen(), map[string]distlock.Outcome{lockedmemory.OpSave: want.write, lockedmemory.OpAppend: want.write,
			lockedmemory.OpSaveOnce: want.write,
			lockedmemory.OpClear:    want.write, lockedmemory.OpReplace: want.write, lockedmemory.OpDelete: want.write})

		memory, seen = observed(t, with)
		_ = memory.Turn(t.Context(), func(ctx context.Context) error { return memory.Clear(ctx) })
		expect(t, seen(), map[string]distlock.Outcome{lockedmemory.OpClear: want.write, lockedmemory.OpTurn: want.turn})
	}
}

// A refused Load is no refused write. Its outcome is known, also if it was sent more than once.
func TestLoad_stale_lost(t *testing.T) {
	memory, seen := observed(t, storedriver.Stale)
	err := memory.Turn(t.Context(), func(ctx context.Context) error {
		return second(memory.Load(ctx, ""))
	})
	if stale := new(sessionstore.StaleError); !errors.As(err, &stale) {
		t.Errorf("Load: %v", err)
	}
	expect(t, seen(), map[string]distlock.Outcome{lockedmemory.OpLoad: distlock.OutcomeLost,
		lockedmemory.OpTurn: distlock.OutcomeLost})
}

func expect(t *testing.T, seen, want map[string]distlock.Outcome) {
	t.Helper()
	if !maps.Equal(seen, want) {
		t.Errorf("the Observer saw %v, want %v", seen, want)
	}
}
