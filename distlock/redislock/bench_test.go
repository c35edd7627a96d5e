package redislock_test

import (
	"context"
	"errors"
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

func TestLocker_callsTakeOneRoundTripEach(t *testing.T) {
	wire := &wire{}
	client := newClient(t, servers.SharedRedis(t), redis.Options{Dialer: wire.dial})
	l, other := newLocker(t, client), newLocker(t, client)
	before := int64(0)
	for i := range 5 {
		if i == 1 { // the server has the scripts now
			before = wire.trips.Load()
		}
		name := strings.Repeat("k", i+1)
		lease, err := l.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.TryAcquire(t.Context(), name); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Error(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := wire.trips.Load() - before; n != 4*3 {
		t.Errorf("%d round trips for 4 acquisitions, refusals and releases, want 12", n)
	}
}

func TestQueue_firstEntry_twoRoundTrips(t *testing.T) {
	server, wire := servers.SharedRedis(t), &wire{}
	holder := newLocker(t, newClient(t, server))
	waiter := newLocker(t, newClient(t, server, redis.Options{Dialer: wire.dial}))
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
