package sessionstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/memstore"
)

// overdue is a driver whose answers to writes come too late, when it is told so, although they took effect.
type overdue struct {
	driver.Driver
	late   bool
	copies []driver.Write
}

func (*overdue) Ready() bool { return true }

func (d *overdue) Append(ctx context.Context, a driver.Append) (driver.Verdict, error) {
	v, err := d.Driver.Append(ctx, a)
	return v, errors.Join(err, d.answered(ctx, a.Write))
}

func (d *overdue) Clear(ctx context.Context, w driver.Write) (driver.Verdict, error) {
	v, err := d.Driver.Clear(ctx, w)
	return v, errors.Join(err, d.answered(ctx, w))
}

func (d *overdue) answered(ctx context.Context, w driver.Write) error {
	d.copies = append(d.copies, w)
	if !d.late {
		return nil
	}
	d.late = false
	<-ctx.Done()
	return ctx.Err()
}

// A call that is made in the caller's goroutine is given up after a few milliseconds, and made again, as the same one.
func TestStore_O_aWriteIsMadeOnceIfItsAnswerIsLate(t *testing.T) {
	var d *overdue
	store, err := sessionstore.New(func(s driver.Settings) (driver.Driver, error) {
		d = &overdue{Driver: memstore.NewDriver(s)}
		return d, nil
	}, lockedmemory.FixedKey("s"), sessionstore.JSON[string]{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(t.Context())
	memory, err := lockedmemory.New(store, locker, lockedmemory.FixedKey("s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]struct {
		do   func(ctx context.Context) error
		want []string
	}{
		"Save":                {func(ctx context.Context) error { return memory.Save(ctx, "q", "a") }, []string{"before", "", "q", "a"}},
		"Save with a turn ID": {func(ctx context.Context) error { return memory.Save(lockedmemory.WithTurnID(ctx, "id"), "q", "a") }, []string{"before", "", "q", "a"}},
		"Clear":               {memory.Clear, []string{}},
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
