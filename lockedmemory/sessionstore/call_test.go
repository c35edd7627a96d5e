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

// lossy is a driver that loses the answer to a write that took effect. It asks for another copy.
type lossy struct {
	storedriver.Driver
	late   bool
	copies []storedriver.Write
}

func (d *lossy) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	v, err := d.Driver.Append(ctx, a)
	return v, errors.Join(err, d.answered(a.Write))
}

func (d *lossy) Replace(ctx context.Context, r storedriver.Replace) (storedriver.Verdict, error) {
	v, err := d.Driver.Replace(ctx, r)
	return v, errors.Join(err, d.answered(r.Write))
}

func (d *lossy) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	v, err := d.Driver.Clear(ctx, c)
	return v, errors.Join(err, d.answered(c.Write))
}

func (d *lossy) answered(w storedriver.Write) error {
	d.copies = append(d.copies, w)
	if !d.late {
		return nil
	}
	d.late = false
	return fmt.Errorf("%w: %w", driver.ErrReplayed, driver.ErrTemporary)
}

// A write whose answer is lost is made again, as the same one.
func TestStore_O_lostAnswer_writtenOnce(t *testing.T) {
	d := &lossy{}
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
			d.copies, d.late = nil, true
			if err := write.do(ctx); err != nil {
				return err
			}
			if len(d.copies) != 2 || d.copies[0].N != d.copies[1].N || d.copies[0].Op != d.copies[1].Op {
				t.Errorf("%s: sent were %+v, want two copies of one write", name, d.copies)
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
type asked struct {
	storedriver.Driver
	calls atomic.Int32
}

func (d *asked) Append(ctx context.Context, a storedriver.Append) (storedriver.Verdict, error) {
	d.calls.Add(1)
	return d.Driver.Append(ctx, a)
}

func (d *asked) Clear(ctx context.Context, c storedriver.Clear) (storedriver.Verdict, error) {
	d.calls.Add(1)
	return d.Driver.Clear(ctx, c)
}

func (d *asked) Read(ctx context.Context, r storedriver.Read) (storedriver.Page, error) {
	d.calls.Add(1)
	return d.Driver.Read(ctx, r)
}

// A caller whose context has ended makes no call, also of a driver that ignores the context and
// answers at once.
func TestStore_C_endedContext_noCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &asked{}
		memory := memoryOver(t, d, &d.Driver)
		ended := func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		}
		load := func(ctx context.Context) error {
			_, err := memory.Load(ctx, "")
			return err
		}
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
		if n := d.calls.Load(); n != 0 {
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
	store, err := memstore.New(lockedmemory.FixedKey("s"), plain{}, nil, nil)
	must(t, err)
	locker, err := memlock.New(nil)
	must(t, err)
	defer locker.Close(context.Background())
	memory, err := lockedmemory.New(store, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
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
	var err error
	if inner != nil {
		*inner, err = memstore.NewDriver(nil)
		must(t, err)
	}
	store, err := sessionstore.New(d, lockedmemory.FixedKey("s"), sessionstore.JSON[string]{}, nil)
	must(t, err)
	locker, err := memlock.New(lock)
	must(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	memory, err := lockedmemory.New(store, locker, lockedmemory.FixedKey("s"), nil)
	must(t, err)
	return memory, store, locker
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
