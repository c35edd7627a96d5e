package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// What locks cost: round trips, goroutines, and bytes here and in Redis.

// A call takes one round trip, and a waiter is in the queue after two. After the first key the server has
// the scripts, and the client listens.
func TestLocker_callsTakeOneRoundTripEach(t *testing.T) {
	server, wire := servers.SharedRedis(t), &wire{}
	holder := newLocker(t, newClient(t, server))
	l := newLocker(t, newClient(t, server, redis.Options{Dialer: wire.dial}))
	least := map[string]int64{} // a call may open a connection, or meet the end of a call before it
	for round := range 5 {
		key := fmt.Sprint("round-", round)
		takes := func(trips int64, what string, call func() error, want error) {
			t.Helper()
			before := wire.trips.Load()
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%s: %v", what, err)
			}
			n := wire.trips.Load() - before
			if round == 0 || n < least[what] {
				least[what] = n
			}
			if round == 4 && least[what] != trips {
				t.Errorf("%s takes %d round trips, want %d", what, least[what], trips)
			}
		}
		waiters := func(want string) {
			servers.Await(t, 10*time.Second, want+" waiters", func() bool { return do(t, server, "ZCARD", "distlock:{"+key+"}:queue") == want })
		}
		var lease *distlock.Lease
		takes(1, "Acquire", func() (err error) {
			lease, err = l.Acquire(t.Context(), key)
			return err
		}, nil)
		takes(1, "Release", func() error { return lease.Release(t.Context()) }, nil)
		held, err := holder.Acquire(t.Context(), key)
		must(t, err)
		takes(1, "TryAcquire", func() error {
			_, err := l.TryAcquire(t.Context(), key)
			return err
		}, distlock.ErrNotAcquired)
		ctx, cancel := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		takes(2, "a waiter", func() error {
			waits.Go(func() { _, _ = l.Acquire(ctx, key) })
			waiters("1")
			return nil
		}, nil)
		cancel()
		waits.Wait()
		waiters("0")
		mustRelease(t, held)
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
	l := newLocker(t, client, settings{ttl: time.Minute, renewEvery: time.Second, observer: &seen})
	leases := make([]*distlock.Lease, n)
	for i := range leases {
		var err error
		leases[i], err = l.Acquire(t.Context(), fmt.Sprintf("session-%06d", i))
		must(t, err)
	}
	time.Sleep(time.Second) // goroutines of Acquire wait a while for more calls

	renewed, failed, trips := seen.renewed.Load(), seen.failed.Load(), wire.trips.Load()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.goroutines = max(c.goroutines, runtime.NumGoroutine()-before)
	}
	c.renewed, c.failed, c.trips = seen.renewed.Load()-renewed, seen.failed.Load()-failed, wire.trips.Load()-trips
	c.heap = math.Inf(1)
	for range 5 { // a batch under way uses memory, too
		time.Sleep(50 * time.Millisecond)
		c.heap = min(c.heap, float64(heapInUse()-heap)/float64(n))
	}
	for _, lease := range leases {
		must(t, lease.Err())
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
	d, client := newDriver(t)
	for i := range names {
		req := owner("a")
		req.Name = driver.Name{Namespace: "distlock", Key: fmt.Sprintf("session-%05d", i)}
		req.Holder = strings.Repeat("h", 64-len(`{"h":""}`))
		mustGrant(t, d, req)
		if i%10 < 2 { // a waiter is cancelled, or crashes
			waits := waits("b")
			waits.Name, waits.Alive = req.Name, 100*time.Millisecond
			if reply, err := d.Acquire(t.Context(), waits); err != nil || reply.Ticket == 0 {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		if i%10 == 0 {
			release(t, d, driver.ReleaseRequest{Name: req.Name, Owner: owner("b").Owner, Tombstone: 100 * time.Millisecond}, false)
		}
		if i%10 != 2 { // or the holder crashes
			release(t, d, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}, true)
		}
	}
	servers.Await(t, 10*time.Second, "queues and tombstones expire", func() bool {
		return len(client.Keys(t.Context(), "*").Val()) == names
	})
	sum := int64(0)
	for _, k := range client.Keys(t.Context(), "*").Val() {
		used, ttl := client.MemoryUsage(t.Context(), k).Val(), client.PTTL(t.Context(), k).Val()
		if sum += used; used > most || ttl <= 0 {
			t.Errorf("%q takes %d B, and expires in %s", k, used, ttl)
		}
	}
	t.Logf("a name takes %d B", sum/names)
}
