package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// What locks cost: round trips, goroutines, and bytes here and in Redis.

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

// A held lease costs few renewals, goroutines and bytes. The TTL is longer than the stalls of a busy
// machine.
func TestLocker_L_manyLeasesCostLittle(t *testing.T) {
	const n = 2_000
	c := hold(t, n)
	for tries := 1; c.failed > 0 && tries < 5; tries++ { // a renewal that fails on a busy machine costs more
		c = hold(t, n)
	}
	t.Logf("%+v", c)
	if c.renewed < 2*n {
		t.Errorf("%d renewals, too few for this test", c.renewed)
	}
	if c.goroutines > 12 {
		t.Errorf("%d goroutines more, want 12 at the most", c.goroutines)
	}
	// A batch takes the renewals of an eighth of a period, at most 1,000. So a period has at most 9
	// + 2 batches, of 182 renewals on average.
	if perTrip := float64(c.renewed) / float64(max(c.trips, 1)); perTrip < 100 {
		t.Errorf("%.0f renewals per round trip, want 100 at least", perTrip)
	}
	// The buffers of the connections are nearly half of it. More leases would share them.
	if c.heap > 2<<10 {
		t.Errorf("%.0f bytes of heap per lease, want 2048 at the most", c.heap)
	}
}

// cost is the cost of held leases, without acquire and release.
type cost struct {
	renewed, failed int64   // renewals
	trips           int64   // round trips on all connections of the client
	goroutines      int     // more than without the Locker and its client, at the most
	heap            float64 // bytes per lease, after garbage collection
}

// counts are an Observer of renewals.
type counts struct{ renewed, failed atomic.Int64 }

func (*counts) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (c *counts) End(_ context.Context, op *distlock.Operation) {
	switch {
	case op.Scheduled && op.Err == nil:
		c.renewed.Add(1)
	case op.Scheduled:
		c.failed.Add(1)
	}
}

// hold holds n leases for three periods of renewal.
func hold(t *testing.T, n int) (c cost) {
	before, heap := runtime.NumGoroutine(), heapInUse()
	var wire wire
	var seen counts
	client := newClient(t, servers.StartRedis(t), redis.Options{Dialer: wire.dial})
	l := newLocker(t, client, ttl(time.Minute), renewEvery(time.Second), seenBy(&seen))
	leases := make([]*distlock.Lease, n)
	var all sync.WaitGroup
	for part := range 16 {
		all.Go(func() {
			for i := part; i < n; i += 16 {
				var err error
				if leases[i], err = l.Acquire(context.Background(), fmt.Sprintf("session-%06d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	time.Sleep(time.Second) // goroutines of Acquire wait a while for more calls

	renewed, failed, trips := seen.renewed.Load(), seen.failed.Load(), wire.trips.Load()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.goroutines = max(c.goroutines, runtime.NumGoroutine()-before)
	}
	c.renewed, c.failed, c.trips = seen.renewed.Load()-renewed, seen.failed.Load()-failed, wire.trips.Load()-trips
	c.heap = float64(heapInUse()-heap) / float64(n)
	for range 4 { // a batch under way uses memory, too
		time.Sleep(50 * time.Millisecond)
		c.heap = min(c.heap, float64(heapInUse()-heap)/float64(n))
	}
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Fatalf("a lease is lost: %v", err)
		}
		mustRelease(t, lease)
	}
	return c
}

// wire counts the round trips of its connections. Writes without a read between them are one round
// trip.
type wire struct{ trips atomic.Int64 }

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{TCPConn: conn.(*net.TCPConn), wire: w}, nil
}

// wireConn has all methods of a TCPConn, so the checks of go-redis before each use cost the same.
type wireConn struct {
	*net.TCPConn
	wire  *wire
	wrote atomic.Bool
}

func (c *wireConn) Write(p []byte) (int, error) {
	if !c.wrote.Swap(true) {
		c.wire.trips.Add(1)
	}
	return c.TCPConn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	c.wrote.Store(false)
	return c.TCPConn.Read(p)
}

// heapInUse is the size of the live objects in the heap.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // sync.Pool frees its objects in the second one
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// After a run, each key of each lock expires, and a name takes at most 330 B: the sum of MEMORY USAGE
// over all keys, which counts a key, its entry in the dictionary, and its value. The holder's name is
// as long as a record keeps one for a day.
func TestKeys_afterARun_smallAndExpiring(t *testing.T) {
	const names, most = 200, 330
	server := servers.SharedRedis(t)
	client := newClient(t, server)
	holder := heldBy(strings.Repeat("h", 64-len(`{"h":""}`)))
	one, other := newLocker(t, client, ttl(time.Second), forever, holder), newLocker(t, client, ttl(time.Second), forever, holder)
	acquire := func(l *distlock.Locker, i int) *distlock.Lease {
		t.Helper()
		lease, err := l.Acquire(t.Context(), fmt.Sprintf("session-%05d", i))
		must(t, err)
		return lease
	}
	for i := range names {
		mustRelease(t, acquire(one, i))
	}
	for i := range names / 10 { // every other waiter leaves
		holder := acquire(one, i)
		ctx, leave := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			err := other.Do(ctx, holder.Key(), func(context.Context) error { return nil })
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		servers.Await(t, 5*time.Second, "a waiter", func() bool { return do(t, server, "ZCARD", "distlock:{"+holder.Key()+"}:queue") == "1" })
		if i%2 == 0 {
			leave()
		}
		mustRelease(t, holder)
		waiter.Wait()
		leave()
	}
	abandoned := newLocker(t, client, ttl(time.Second), renewEvery(-1), holder)
	var last *distlock.Lease
	for i := range names / 10 {
		last = acquire(abandoned, i)
	}
	<-last.Context().Done()
	for _, l := range []*distlock.Locker{one, other, abandoned} { // what goes on in the background ends
		must(t, l.Close(t.Context()))
	}

	sum, records := int64(0), 0
	for _, k := range client.Keys(t.Context(), "*").Val() {
		used := client.MemoryUsage(t.Context(), k).Val()
		sum += used
		if strings.HasSuffix(k, ":lock") {
			records++
			if used > most {
				t.Errorf("a record takes %d B: %q", used, client.Get(t.Context(), k).Val())
			}
		}
		if ttl := client.PTTL(t.Context(), k).Val(); ttl <= 0 {
			t.Errorf("%q expires in %s", k, ttl)
		}
	}
	t.Logf("%d names take %d B each", records, sum/names)
	if records != names || sum > most*names {
		t.Errorf("%d records of %d names; all keys take %d B", records, names, sum)
	}
}
