package lockedmemory_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory"
)

// idle is a memory that does nothing.
type idle struct{}

func (idle) Save(context.Context, string, string) error         { return nil }
func (idle) Load(context.Context, string) ([]string, error)     { return nil, nil }
func (idle) Search(context.Context, string, int) ([]int, error) { return nil, nil }
func (idle) Clear(context.Context) error                        { return nil }

// The memory's own part of an operation that finds its session free: without a server, and without a store.
func benchmark(b *testing.B, call func(context.Context, *lockedmemory.LockedMemory[string, int]) error) {
	locker, err := memlock.New(&distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer locker.Close(context.Background())
	m, err := lockedmemory.New(idle{}, locker, lockedmemory.FixedKey("session"), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := call(context.Background(), m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	benchmark(b, func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
		return m.Turn(ctx, func(context.Context) error { return nil })
	})
}

func BenchmarkSave(b *testing.B) {
	benchmark(b, func(ctx context.Context, m *lockedmemory.LockedMemory[string, int]) error {
		return m.Save(ctx, "q", "a")
	})
}
