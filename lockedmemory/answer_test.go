package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// Most promises of Answer are tests of package storetest: they are those of a memory with its store.

func reply(answer ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return answer, nil }
}

// holds checks the history.
func (k *kept) holds(t *testing.T, want ...string) {
	t.Helper()
	if history, err := k.store.Load(t.Context(), ""); err != nil || !slices.Equal(history, want) {
		t.Errorf("the history is %q, %v; want %q", history, err, want)
	}
}

// fails checks that an Answer fails and stores nothing, and that its repetition stores an answer.
func (k *kept) fails(t *testing.T, ctx context.Context, fn func(context.Context) ([]string, error), want error) {
	t.Helper()
	if answer, err := k.memory.Answer(ctx, "id", "q", fn); answer != nil || !errors.Is(err, want) {
		t.Errorf("Answer: %q, %v; want %v", answer, err, want)
	}
	k.holds(t)
	answer, err := k.memory.Answer(t.Context(), "id", "q", reply("a"))
	if err != nil || !slices.Equal(answer, []string{"a"}) {
		t.Errorf("repeated: %q, %v", answer, err)
	}
	k.holds(t, "q", "a")
}

// Under an invalid ID, no function is run, and nothing is written.
func TestAnswer_invalidID_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		for _, id := range []string{"", strings.Repeat("x", 513), strings.Repeat("x", 10<<10)} {
			answer, err := k.memory.Answer(t.Context(), id, "q", func(context.Context) ([]string, error) {
				t.Error("the function was run")
				return []string{"a"}, nil
			})
			if answer != nil || !errors.Is(err, lockedmemory.ErrInvalidID) {
				t.Errorf("an ID of %d bytes: %q, %v", len(id), answer, err)
			}
			if err := k.memory.SaveOnce(t.Context(), id, "q"); !errors.Is(err, lockedmemory.ErrInvalidID) {
				t.Errorf("SaveOnce under an ID of %d bytes: %v", len(id), err)
			}
		}
	})
}

func TestAnswer_O_failure_nothingStored(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, k *kept, leave func()) ([]string, error)
		want error
	}{
		"its error":  {func(context.Context, *kept, func()) ([]string, error) { return []string{"half"}, errInner }, errInner},
		"no message": {func(context.Context, *kept, func()) ([]string, error) { return nil, nil }, distlock.ErrInvalidOption},
		"the caller leaves": {func(_ context.Context, _ *kept, leave func()) ([]string, error) {
			leave()
			return []string{"late"}, nil
		}, context.Canceled},
		"its lease is lost": {func(ctx context.Context, k *kept, _ func()) ([]string, error) {
			down(k.faults)
			<-ctx.Done()
			k.faults.Inject(nil)
			return []string{"late"}, nil
		}, distlock.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, distlock.Options{TTL: time.Second}, nil)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				func() { // a panic stores nothing, either
					defer func() { _ = recover() }()
					_, _ = k.memory.Answer(ctx, "id", "q", func(context.Context) ([]string, error) { panic("stop") })
				}()
				k.fails(t, ctx, func(ctx context.Context) ([]string, error) { return c.fn(ctx, k, leave) }, c.want)
			})
		})
	}
}

// lingering is a session store whose SaveOnce returns when its lease was lost.
type lingering struct {
	*sessionstore.Store[string, string]
}

func (l lingering) SaveOnce(ctx context.Context, id string, messages ...string) error {
	err := l.Store.SaveOnce(ctx, id, messages...)
	<-ctx.Done()
	return err
}

func TestAnswer_O_lostAfterSave_noFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{TTL: time.Second}, nil)
		memory, err := lockedmemory.New(lingering{k.store}, k.locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		answer, err := memory.Answer(t.Context(), "id", "q", func(context.Context) ([]string, error) {
			down(k.faults)
			return []string{"a"}, nil
		})
		if err != nil || !slices.Equal(answer, []string{"a"}) {
			t.Errorf("Answer: %q, %v", answer, err)
		}
		k.holds(t, "q", "a")
	})
}

func TestAnswer_busy_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, &lockedmemory.Options{Busy: lockedmemory.Refuse})
		must(t, k.b.Turn(t.Context(), func(context.Context) error {
			other, began := make(chan error), time.Now()
			go func() {
				_, err := k.memory.Answer(t.Context(), "id", "q", reply("a"))
				other <- err
			}()
			if err := <-other; !errors.Is(err, distlock.ErrNotAcquired) || time.Since(began) > time.Second {
				t.Errorf("Answer after %s: %v", time.Since(began), err)
			}
			return nil
		}))
		k.holds(t)
	})
}

// split is a memory of another kind over a locked memory: its Save is a turn of two Appends, as Beluga's recall
// makes two.
type split struct {
	history
	to *lockedmemory.LockedMemory[string, string]
}

func (s *split) Save(ctx context.Context, input, output string) error {
	return s.to.Turn(ctx, func(ctx context.Context) error {
		return errors.Join(s.to.Append(ctx, input), s.to.Append(ctx, output))
	})
}

// A memory whose Save makes several calls, and a turn, stores them whole inside an Answer: no ID reaches them.
func TestAnswer_O_memoryOfAppendsInside_stored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		recall, err := lockedmemory.New[string, int](&split{to: k.memory}, k.locker, lockedmemory.FixedKey(session), nil)
		must(t, err)
		for range 2 {
			answer, err := k.memory.Answer(t.Context(), "id", "q", func(ctx context.Context) ([]string, error) {
				return []string{"a"}, recall.Save(ctx, "inner q", "inner a")
			})
			if err != nil || !slices.Equal(answer, []string{"a"}) {
				t.Errorf("Answer: %q, %v", answer, err)
			}
		}
		k.holds(t, "inner q", "inner a", "q", "a")
		must(t, recall.Save(t.Context(), "q2", "a2"))
		k.holds(t, "inner q", "inner a", "q", "a", "q2", "a2")
	})
}
