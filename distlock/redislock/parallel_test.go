//go:build unix

package redislock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// BenchmarkParallel compares the acquisitions and releases per second of 64 goroutines, each on its
// own key, with those of the bare lock of BenchmarkUncontended. The two alternate, a fifth of a
// second each. It prints the median of each, the median ratio of neighbouring runs, and per
// acquisition the round trips and the CPU of both sides.
func BenchmarkParallel(b *testing.B) {
	b.Run("ContextTimeoutEnabled", func(b *testing.B) { parallel(b, true) })
	b.Run("default", func(b *testing.B) { parallel(b, false) })
}

func parallel(b *testing.B, punctual bool) {
	const (
		goroutines = 64
		turn       = 200 * time.Millisecond
	)
	ctx := context.Background()
	server := servers.SharedRedis(b)
	admin := newClient(b, server)
	connect := func() (*redis.Client, *wire) {
		wire := &wire{}
		return newClient(b, server, redis.Options{ContextTimeoutEnabled: punctual, Dialer: wire.dial}), wire
	}
	bare, _ := connect()
	client, trips := connect()
	l := newLocker(b, client, distlock.Options{Logger: slog.New(slog.DiscardHandler)})

	raw := func(key string) error {
		if ok, err := bare.SetNX(ctx, "raw:"+key, "owner", 30*time.Second).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %t, %w", ok, err)
		}
		return deleteIfEqual.Run(ctx, bare, []string{"raw:" + key}, "owner").Err()
	}
	locked := func(key string) error {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	perSecond := func(op func(key string) error) (rate float64, n int64) {
		var done atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for i := range goroutines {
			all.Go(func() {
				for key := fmt.Sprint(i); time.Since(start) < turn; done.Add(1) {
					if err := op(key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		return float64(done.Load()) / time.Since(start).Seconds(), done.Load()
	}
	perSecond(raw)
	perSecond(locked)

	var raws, lockeds, ratios []float64
	var n, sent int64
	var cpu, serverCPU float64
	for b.Loop() {
		rate, _ := perSecond(raw)
		raws = append(raws, rate)
		trips0, cpu0, server0 := trips.trips.Load(), cpuSeconds(b), serverSeconds(b, admin)
		rate, pairs := perSecond(locked)
		lockeds, ratios = append(lockeds, rate), append(ratios, rate/raws[len(raws)-1])
		n, sent = n+pairs, sent+trips.trips.Load()-trips0
		cpu, serverCPU = cpu+cpuSeconds(b)-cpu0, serverCPU+serverSeconds(b, admin)-server0
	}
	median := func(of []float64) float64 {
		slices.Sort(of)
		return of[len(of)/2]
	}
	b.ReportMetric(median(raws), "raw/s")
	b.ReportMetric(median(lockeds), "lock/s")
	b.ReportMetric(median(ratios), "lock/raw")
	b.ReportMetric(float64(sent)/float64(n), "round-trips")
	b.ReportMetric(1e6*cpu/float64(n), "µs-cpu")
	b.ReportMetric(1e6*serverCPU/float64(n), "µs-cpu-redis")
	b.ReportMetric(0, "ns/op") // hides the mean of both
}
