package distlock_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// BenchmarkContended has 32 goroutines of one process take turns on one key.
func BenchmarkContended(b *testing.B) {
	l, err := memlock.New(&distlock.Options{Wait: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	const goroutines = 32
	var wg sync.WaitGroup
	b.ReportAllocs()
	for g := range goroutines {
		n := b.N / goroutines
		if g < b.N%goroutines {
			n++
		}
		wg.Go(func() {
			for range n {
				lease, err := l.Acquire(context.Background(), "key")
				if err != nil {
					b.Error(err)
					return
				}
				if err := lease.Release(context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkUncontended acquires and releases a free lock in one goroutine: the Locker's own part, without
// a server.
func BenchmarkUncontended(b *testing.B) {
	l, err := memlock.New(&distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		lease, err := l.Acquire(context.Background(), "key")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
