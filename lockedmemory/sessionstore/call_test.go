package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

type effect = func() (storedriver.Verdict, error)

// scripted is a driver with the writes and reads of a test. A write may have the effect that was asked for.
type scripted struct {
	storedriver.Driver
	write func(ctx context.Context, w storedriver.Write, do effect) (storedriver.Verdict, error)
	read  func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) // nil: as the driver
}

func (d *scripted) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	return d.write(ctx, a.Write, func() (storedriver.Verdict, error) { return d.Driver.Append(ctx, a) })
}

func (d *scripted) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	return d.write(ctx, r.Write, func() (storedriver.Verdict, error) { return d.Driver.Replace(ctx, r) })
}

func (d *scripted) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	return d.write(ctx, c.Write, func() (storedriver.Verdict, error) { return d.Driver.Clear(ctx, c) })
}

func (d *scripted) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	if d.read == nil {
		return d.Driver.Read(ctx, r)
	}
	return d.read(ctx, r)
}

// A write whose answer is lost is made again, as the same one.
func TestStore_O_lostAnswer_writtenOnce(t *testing.T) {
	late, copies := false, []storedriver.Write{}
	d := &scripted{write: func(_ context.Context, w storedriver.Write, do effect) (storedriver.Verdict, error) {
		v, err := do()
		if copies = append(copies, w); late {
			late, err = false, errors.Join(err, fmt.Errorf("%w: %w", driver.ErrReplayed, driver.ErrTemporary))
		}
		return v, err
	}}
	memory := memoryOver(t, d, &d.Driver)
	for name, write := range map[string]struct {
		do   func(ctx context.Context) error
		want []string
	}{
		"Save": {func(ctx context.Context) error { return memory.Save(ctx, "q", "a") },
			[]string{"before", "", "q", "a"}},
		"SaveOnce": {func(ctx context.Context) error {
			return memory.SaveOnce(ctx, "id", "q", "a")
		}, []string{"before", "", "q", "a"}},
		"Clear": {memory.Clear, []string{}},
	} {
		err := memory.Turn(t.Context(), func(ctx context.Context) error {
			if err := errors.Join(memory.Clear(ctx), memory.Save(ctx, "before", "")); err != nil {
				return err
			}
			copies, late = nil, true
			if err := write.do(ctx); err != nil {
				return err
			}
			if len(copies) != 2 || copies[0].N != copies[1].N || copies[0].Op != copies[1].Op {
				t.Errorf("%s: sent were %+v, want two copies of one write", name, copies)
			}
			history, err := memory.Load(ctx, "")
			if !slices.Equal(history, write.want) {
				t.Errorf("%s: the history is %q, want %q", name, history, write.want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// asked is a driver that counts the calls that are made of it.
func asked() (d *scripted, calls *atomic.Int32) {
	d, calls = &scripted{}, &atomic.Int32{}
	d.write = func(_ context.Context, _ storedriver.Write, do effect) (storedriver.Verdict, error) {
		calls.Add(1)
		return do()
	}
	d.read = func(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
		calls.Add(1)
		return d.Driver.Read(ctx, r)
	}
	return d, calls
}

// A caller whose context has ended makes no call, also of a driver that ignores the context and
// answers at once.
func TestStore_C_endedContext_noCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, calls := asked()
		memory := memoryOver(t, d, &d.Driver)
		load := func(ctx context.Context) error { return second(memory.Load(ctx, "")) }
		save := func(ctx context.Context) error { return memory.Save(ctx, "q", "a") }
		err := memory.Turn(t.Context(), func(turn context.Context) error {
			for name, err := range map[string]error{
				"Load": load(ended(t.Context())), "Load in a turn": load(ended(turn)),
				"Save": save(ended(turn)), "Clear": memory.Clear(ended(turn)),
			} {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := calls.Load(); n != 0 {
			t.Errorf("%d calls were made", n)
		}
	})
}

// plain is a codec whose texts have no end of their own.
type plain struct{}

func (plain) Encode(m string) ([]byte, error) { return []byte(m), nil }
func (plain) Decode(b []byte) (string, error) { return string(b), nil }
func (plain) Text(m string) string            { return m }
func (plain) Document(m string) string        { return m }

// Messages under an ID are told apart by where one ends and the other begins, too.
func TestSave_O_sameTextOtherwiseSplit_conflict(t *testing.T) {
	d, err := memstore.NewDriver(nil)
	must(t, err)
	memory, _, _ := with(t, d, plain{}, nil)
	must(t, memory.SaveOnce(t.Context(), "id", "ab", "c"))
	if err := memory.SaveOnce(t.Context(), "id", "a", "bc"); !errors.Is(err, sessionstore.ErrIDConflict) {
		t.Errorf("Save: %v", err)
	}
}

// memoryOver makes a memory of one session over a driver, under a lock in process. inner is the driver
// that it is around; nil: it needs none.
func memoryOver(t *testing.T, d storedriver.Driver, inner *storedriver.Driver) *lockedmemory.LockedMemory[string, string] {
	t.Helper()
	memory, _, _ := over(t, d, inner, nil)
	return memory
}

func over(t *testing.T, d storedriver.Driver, inner *storedriver.Driver, lock *distlock.Options) (*lockedmemory.LockedMemory[string, string],
	*sessionstore.Store[string, string], *distlock.Locker) {
	t.Helper()
	if inner != nil {
		var err error
		*inner, err = memstore.NewDriver(nil)
		must(t, err)
	}
	return with(t, d, sessionstore.JSON[string]{}, lock)
}

// with makes a memory whose messages have a codec.
func with[M, D any](t *testing.T, d storedriver.Driver, codec sessionstore.Codec[M, D], lock *distlock.Options) (
	*lockedmemory.LockedMemory[M, D], *sessionstore.Store[M, D], *distlock.Locker) {
	t.Helper()
	store, err := sessionstore.New(d, lockedmemory.FixedKey("s"), codec, nil)
	must(t, err)
	locker, err := memlock.New(lock)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	memory, err := lockedmemory.New(store, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
	return memory, store, locker
}

func second[T any](_ T, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
