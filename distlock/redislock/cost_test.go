package redislock_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// BenchmarkCost shows where the time of an uncontended lock goes. It prints the median of calls
// that alternate: the two of the bare lock, an empty script, and acquire and release of the driver
// and of the Locker.
func BenchmarkCost(b *testing.B) {
	ctx := context.Background()
	server := servers.SharedRedis(b)
	connect := func() *redis.Client { // one for each, because they set different deadlines
		return newClient(b, server, redis.Options{ContextTimeoutEnabled: true})
	}
	client := connect()
	l := newLocker(b, connect(), distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	d := driverOver(b, connect())
	nothing := redis.NewScript("return 1")
	var (
		lease *distlock.Lease
		req   driver.AcquireRequest
		turn  int
	)
	steps := []struct {
		name string
		call func() error
	}{
		{"bare-set", func() error { return client.SetNX(ctx, "raw", "owner", 30*time.Second).Err() }},
		{"bare-delete", func() error { return deleteIfEqual.Run(ctx, client, []string{"raw"}, "owner").Err() }},
		{"script", func() error { return nothing.Run(ctx, client, []string{"raw"}).Err() }},
		{"driver-acquire", func() error { _, err := d.Acquire(ctx, req); return err }},
		{"driver-release", func() error {
			_, err := d.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		}},
		{"lock-acquire", func() (err error) { lease, err = l.Acquire(ctx, "bench"); return err }},
		{"lock-release", func() error { return lease.Release(ctx) }},
	}
	took := make([][]time.Duration, len(steps))
	for b.Loop() {
		turn++
		req = driver.AcquireRequest{
			Name: driver.Name{Namespace: "distlock", Key: "driver"}, TTL: 30 * time.Second, Holder: "host:1234",
			Owner: strings.Repeat(string(rune('a'+turn%6)), 31) + string(rune('0'+turn%10)),
		}
		for i, step := range steps {
			start := time.Now()
			if err := step.call(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i, step := range steps {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds())/1000, step.name+"-µs")
	}
	b.ReportMetric(0, "ns/op") // hides the mean of all
}
