package lockedmemory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/lockedmemory"
)

// turns returns the operations of turns, in the order of their ends.
func (o *ops) turns() (turns []distlock.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.seen {
		if op.Name == lockedmemory.OpTurn || op.Name == lockedmemory.OpAnswer {
			turns = append(turns, op)
		}
	}
	o.seen = nil
	return turns
}

// account is what the operation of a turn says.
type account struct {
	wait, held time.Duration
	exchanges  int
}

// expect compares the accounts of the turns that have ended.
func (o *ops) expect(t *testing.T, what string, want ...account) {
	t.Helper()
	turns := o.turns()
	if len(turns) != len(want) {
		t.Errorf("%s: %d turns, want %d", what, len(turns), len(want))
		return
	}
	for i, op := range turns {
		if got := (account{op.Wait, op.Held, op.Exchanges}); got != want[i] {
			t.Errorf("%s: turn %d: %+v, want %+v", what, i, got, want[i])
		}
	}
}

func TestTurn_account_waitHeldExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		other, err := k.locker.Acquire(t.Context(), session)
		must(t, err)
		time.AfterFunc(2*time.Second, func() { _ = other.Release(context.Background()) })
		must(t, k.memory.Turn(t.Context(), func(ctx context.Context) error {
			time.Sleep(3 * time.Second)
			must(t, k.memory.Save(ctx, "q", "a"))
			must(t, k.memory.Append(ctx, "q", "call", "a"))
			must(t, k.memory.Clear(ctx))
			if err := k.memory.Append(ctx); err == nil {
				t.Error("an exchange without a message was stored")
			}
			return k.of(t, "another session", nil).Save(ctx, "q", "a")
		}))
		k.observer.expect(t, "a turn that waited", account{2 * time.Second, 3 * time.Second, 2})
	})
}

// A turn inside another one neither waits nor holds. Its exchanges count for both.
func TestTurn_account_joined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		save := func(ctx context.Context) error {
			time.Sleep(time.Second)
			return s.a.Save(ctx, "q", "a")
		}
		must(t, s.a.Turn(t.Context(), func(ctx context.Context) error {
			return errors.Join(s.a.Turn(ctx, save), s.a.Turn(ctx, save))
		}))
		s.observer.expect(t, "turns in a turn", account{exchanges: 1}, account{exchanges: 1}, account{0, 2 * time.Second, 2})
		must(t, s.locker.Do(t.Context(), session, func(ctx context.Context) error { return s.a.Turn(ctx, save) }))
		s.observer.expect(t, "a turn under a lease", account{exchanges: 1})
	})
}

func TestTurn_account_withoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, &lockedmemory.Options{Wait: 2 * time.Second})
		other, err := s.locker.Acquire(t.Context(), session)
		must(t, err)
		_ = s.b.Turn(t.Context(), func(context.Context) error { t.Error("ran"); return nil })
		s.observer.expect(t, "a turn that gave up", account{wait: 2 * time.Second})
		must(t, other.Release(t.Context()))
	})
}

// After the loss of its lease, a turn holds nothing.
func TestTurn_account_lostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{TTL: time.Second}, nil)
		began, held := time.Now(), time.Duration(0)
		err := s.a.Turn(t.Context(), func(ctx context.Context) error {
			must(t, s.a.Save(ctx, "q", "a"))
			down(s.faults)
			<-ctx.Done()
			held = time.Since(began)
			time.Sleep(time.Hour)
			return s.a.Save(ctx, "q", "a")
		})
		if !errors.Is(err, distlock.ErrLost) || held > time.Second {
			t.Errorf("Turn: %v; the lease was held for %s", err, held)
		}
		s.observer.expect(t, "a lost lease", account{0, held, 1})
	})
}

// The work of a turn that panics was done.
func TestTurn_account_panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t, distlock.Options{}, nil)
		func() {
			defer func() { _ = recover() }()
			_ = s.a.Turn(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Second)
				must(t, s.a.Save(ctx, "q", "a"))
				panic("work")
			})
		}()
		s.observer.expect(t, "a panic", account{0, time.Second, 1})
	})
}

// A stored answer is not stored again. A Save under a stored ID counts: its exchange is stored.
func TestTurn_account_repeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, distlock.Options{}, nil)
		for i, want := range []int{1, 0} {
			must(t, second(k.memory.Answer(t.Context(), "id", "q", reply("a"))))
			k.observer.expect(t, []string{"an answer", "its repetition"}[i], account{exchanges: want})
		}
		for range 2 {
			must(t, k.memory.Turn(t.Context(), func(ctx context.Context) error {
				return k.memory.SaveOnce(ctx, "other", "q", "a")
			}))
			k.observer.expect(t, "a Save with an ID", account{exchanges: 1})
		}
		k.holds(t, "q", "a", "q", "a")
	})
}

// ops is an Observer that remembers operations.
type ops struct {
	mu   sync.Mutex
	seen []distlock.Operation
}

func (o *ops) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (o *ops) End(_ context.Context, op *distlock.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, *op)
}

// saw checks the operations whose names begin with prefix, and their outcomes.
func (o *ops) saw(t *testing.T, prefix string, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	var seen []string
	for _, op := range o.seen {
		if strings.HasPrefix(op.Name, prefix) {
			seen = append(seen, op.Name+" "+string(op.Outcome))
		}
		if op.Key != session || op.Backend != "memory" {
			t.Errorf("the Observer saw %+v", op)
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the Observer saw %q, want %q", seen, want)
	}
}

func down(f *drivertest.Faults) {
	f.Inject(func(drivertest.Call) drivertest.Fault { return drivertest.Fault{Before: errBroken} })
}
