package lockedmemory_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

// kept is a locked memory over a session store.
type kept struct {
	*setup
	store  *sessionstore.Store[string, string]
	memory *lockedmemory.LockedMemory[string, string]
}

func newKept(t *testing.T, opts distlock.Options, memOpts *lockedmemory.Options) *kept {
	t.Helper()
	k := &kept{setup: newSetup(t, opts, memOpts)}
	var err error
	k.store, err = memstore.New(lockedmemory.FixedKey(session), sessionstore.JSON[string]{}, nil, nil)
	must(t, err)
	k.memory, err = lockedmemory.New(k.store, k.locker, lockedmemory.FixedKey(session), memOpts)
	must(t, err)
	return k
}

// storeCalls has the calls of a memory that need a session store.
func storeCalls[D any](m *lockedmemory.LockedMemory[string, D]) (writes, reads map[string]func(context.Context) error) {
	pages := func(pages iter.Seq2[lockedmemory.Exchange[string], error]) (err error) {
		for _, err = range pages {
		}
		return err
	}
	place := lockedmemory.Place{Fence: 1, N: 1}
	writes = map[string]func(context.Context) error{
		"append":    func(ctx context.Context) error { return m.Append(ctx, "q", "call", "a") },
		"save_once": func(ctx context.Context) error { return m.SaveOnce(ctx, "once", "q", "a") },
		"replace":   func(ctx context.Context) error { return m.Replace(ctx, place, place) },
		"delete":    m.Delete,
		"answer": func(ctx context.Context) error {
			_, err := m.Answer(ctx, "id", "q", func(context.Context) ([]string, error) { return []string{"a"}, nil })
			return err
		},
		"answer_all": func(ctx context.Context) error {
			_, err := m.AnswerAll(ctx, questions("a b"), asks(new([]string), "a"))
			return err
		},
	}
	reads = map[string]func(context.Context) error{
		"answered": func(ctx context.Context) error { _, _, err := m.Answered(ctx, "id"); return err },
		"last":     func(ctx context.Context) error { _, err := m.Last(ctx, 2); return err },
		"backward": func(ctx context.Context) error { return pages(m.Backward(ctx, lockedmemory.Place{})) },
		"forward":  func(ctx context.Context) error { return pages(m.Forward(ctx, lockedmemory.Place{})) },
		"pending":  func(ctx context.Context) error { return second(m.Pending(ctx)) },
	}
	return writes, reads
}

// A memory that is no session store has none of its calls, and takes no lock for them.
func TestSessionStore_otherMemory_unsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		down(s.faults)
		writes, reads := storeCalls(s.a)
		reads["ping"] = func(ctx context.Context) error { return second(s.a.Ping(ctx)) }
		for name, names := range map[string]func(context.Context) iter.Seq2[string, error]{"sessions": s.a.Sessions, "inboxes": s.a.Inboxes} {
			reads[name] = func(ctx context.Context) (last error) {
				for _, last = range names(ctx) {
				}
				return last
			}
		}
		writes["put"] = func(ctx context.Context) error { return s.a.Put(ctx, "id", "q") }
		for _, calls := range []map[string]func(context.Context) error{writes, reads} {
			for name, call := range calls {
				if err := call(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if len(s.inner.seen) > 0 {
			t.Errorf("%d calls of the inner memory", len(s.inner.seen))
		}
	})
}

// Under a lease that has ended, the calls fail as Save and Load do.
func TestSessionStore_S2_endedTurn_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		var ended context.Context
		must(t, k.memory.Turn(t.Context(), func(ctx context.Context) error { ended = ctx; return nil }))
		writes, reads := storeCalls(k.memory)
		for _, calls := range []map[string]func(context.Context) error{writes, reads} {
			for name, call := range calls {
				if err := call(context.WithoutCancel(ended)); !errors.Is(err, distlock.ErrNotHeld) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		if history, err := k.memory.Load(t.Context(), ""); len(history) != 0 || err != nil {
			t.Errorf("the history is %q, %v", history, err)
		}
	})
}

// The Observer sees each write by its name. An Answer and an AnswerAll are the turns around their write.
func TestObserver_seesSessionStoreWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		writes, _ := storeCalls(k.memory)
		for _, name := range []string{"append", "answer", "answer_all", "replace", "delete"} {
			_ = writes[name](t.Context())
		}
		must(t, k.memory.Put(t.Context(), "put", "q"))
		k.observer.saw(t, "lockedmemory.", lockedmemory.OpAppend+" done", lockedmemory.OpSaveOnce+" done", lockedmemory.OpAnswer+" done",
			lockedmemory.OpSaveOnce+" done", lockedmemory.OpAnswerAll+" done", lockedmemory.OpReplace+" failed", lockedmemory.OpDelete+" done",
			lockedmemory.OpPut+" done")
		k.observer.saw(t, distlock.OpRaiseToken, distlock.OpRaiseToken+" done") // of the Delete
	})
}
