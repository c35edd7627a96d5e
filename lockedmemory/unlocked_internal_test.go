package lockedmemory

import (
	"context"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

type nothing struct{}

func (nothing) Save(context.Context, string, string) error            { return nil }
func (nothing) Load(context.Context, string) ([]string, error)        { return nil, nil }
func (nothing) Search(context.Context, string, int) ([]string, error) { return nil, nil }
func (nothing) Clear(context.Context) error                           { return nil }

// After a suspend of unknown length, a lease may be lost and another holder may have the lock.
func TestFailOpen_S1_notUnderALease(t *testing.T) {
	locker, err := memlock.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	m, err := New[string, string](nothing{}, locker, FixedKey("s"), &Options{FailOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	opens := func(ctx context.Context, key string) bool {
		return m.failsOpen(ctx, &distlock.Operation{Name: OpSave, Key: key}, distlock.ErrUnavailable)
	}
	if err := locker.Do(t.Context(), "s", func(ctx context.Context) error {
		if opens(ctx, "s") {
			t.Error("under a lease, it runs without the lock")
		}
		if !opens(ctx, "another") || !opens(t.Context(), "s") {
			t.Error("without a lease, it does not")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
