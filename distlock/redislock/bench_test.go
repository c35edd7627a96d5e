package redislock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func BenchmarkDriver(b *testing.B) {
	drivertest.Benchmark(b, drivers(onNode(b)))
}

// deleteIfEqual releases a lock without fences, renewal and idempotence.
var deleteIfEqual = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end`)

// BenchmarkUncontended compares an acquire and release of a Locker, renewal and loss notice on,
// with the bare lock: SET NX PX and a compare-and-delete script. The two alternate, so that both
// run on the same machine at the same time. It prints the median of each, their ratio, and the
// round trips of one acquire and release.
func BenchmarkUncontended(b *testing.B) {
	b.Run("ContextTimeoutEnabled", func(b *testing.B) { uncontended(b, true) })
	b.Run("default", func(b *testing.B) { uncontended(b, false) })
}

func uncontended(b *testing.B, punctual bool) {
	ctx := context.Background()
	wire := &wire{}
	client := newClient(b, servers.SharedRedis(b), redis.Options{ContextTimeoutEnabled: punctual, Dialer: wire.dial})
	l := newLocker(b, client, distlock.Options{Logger: slog.New(slog.DiscardHandler)})

	locked := func() error {
		lease, err := l.Acquire(ctx, "bench")
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	raw := func() error {
		if ok, err := client.SetNX(ctx, "raw", "owner", 30*time.Second).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %t, %w", ok, err)
		}
		return deleteIfEqual.Run(ctx, client, []string{"raw"}, "owner").Err()
	}
	timed := func(op func() error) time.Duration {
		start := time.Now()
		if err := op(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	for range 200 {
		timed(raw)
		timed(locked)
	}
	before := wire.trips.Load()
	timed(locked)
	trips := wire.trips.Load() - before

	var raws, lockeds []time.Duration
	for b.Loop() {
		raws = append(raws, timed(raw))
		lockeds = append(lockeds, timed(locked))
	}
	slices.Sort(raws)
	slices.Sort(lockeds)
	p50 := func(d []time.Duration) float64 { return float64(d[len(d)/2].Nanoseconds()) / 1000 }
	b.ReportMetric(p50(raws), "raw-p50-µs")
	b.ReportMetric(p50(lockeds), "lock-p50-µs")
	b.ReportMetric(p50(lockeds)/p50(raws), "lock/raw")
	b.ReportMetric(float64(trips), "round-trips")
	b.ReportMetric(0, "ns/op") // hides the mean of both
}

func TestLocker_acquireAndRelease_twoRoundTrips(t *testing.T) {
	wire := &wire{}
	l := newLocker(t, newClient(t, servers.SharedRedis(t), redis.Options{Dialer: wire.dial}), distlock.Options{})
	before := int64(0)
	for i := range 5 {
		if i == 1 { // the server has the scripts now
			before = wire.trips.Load()
		}
		lease, err := l.Acquire(t.Context(), strings.Repeat("k", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := wire.trips.Load() - before; n != 4*2 {
		t.Errorf("%d round trips for 4 acquisitions and releases, want 8", n)
	}
}

func TestQueue_firstEntry_twoRoundTrips(t *testing.T) {
	server, wire := servers.SharedRedis(t), &wire{}
	holder := newLocker(t, newClient(t, server), distlock.Options{})
	waiter := newLocker(t, newClient(t, server, redis.Options{Dialer: wire.dial}), distlock.Options{})
	queued := func(key, want string) {
		t.Helper()
		servers.Await(t, 10*time.Second, want+" waiters of "+key, func() bool {
			n, err := server.Do("ZCARD", "distlock:{"+key+"}:queue")
			return err == nil && n == want
		})
	}
	var before int64
	// With the second key the server has the scripts, and the client listens.
	for _, key := range []string{"first", "second"} {
		lease, err := holder.Acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(t.Context())
		before = wire.trips.Load()
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		waits.Go(func() { _, _ = waiter.Acquire(ctx, key) })
		queued(key, "1")
		if n := wire.trips.Load() - before; key == "second" && n != 2 {
			t.Errorf("%d round trips until a waiter is in the queue, want 2", n)
		}
		cancel()
		waits.Wait()
		queued(key, "0")
	}
}
