package redislock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A held lease costs few renewals, goroutines and bytes. The TTL is longer than the stalls of a busy
// machine.
func TestLocker_L_manyLeasesCostLittle(t *testing.T) {
	const n = 2_000
	c := cost{failed: 1}
	for tries := 0; c.failed > 0 && tries < 5; tries++ { // a renewal that fails on a busy machine costs more
		c = hold(t, n, 3*time.Second, ttl(time.Minute), renewEvery(time.Second))
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
	renewed    int64   // successful renewals
	failed     int64   // other renewals
	trips      int64   // round trips on all connections of the process
	goroutines int     // more than without the Locker and its client, at the most
	heap       float64 // bytes per lease, after garbage collection
}

// hold acquires n leases, and holds them for d.
func hold(t *testing.T, n int, d time.Duration, with ...options) (c cost) {
	goroutines := watchGoroutines(t)
	before, heap := goroutines.reset(), heapInUse()
	var wire wire
	client := newClient(t, servers.StartRedis(t), redis.Options{Dialer: wire.dial})
	var renewed, failed atomic.Int64
	observer := onEnd(func(op *distlock.Operation) {
		switch {
		case op.Scheduled && op.Err == nil:
			renewed.Add(1)
		case op.Scheduled:
			failed.Add(1)
		}
	})
	l := newLocker(t, client, append(with, seenBy(observer))...)
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

	goroutines.reset()
	renewed0, failed0, trips0 := renewed.Load(), failed.Load(), wire.trips.Load()
	time.Sleep(d)
	c.renewed, c.failed, c.trips = renewed.Load()-renewed0, failed.Load()-failed0, wire.trips.Load()-trips0
	c.goroutines = goroutines.reset() - before
	c.heap = float64(heapInUse()-heap) / float64(n)
	for range 4 { // a batch under way uses memory, too
		time.Sleep(50 * time.Millisecond)
		c.heap = min(c.heap, float64(heapInUse()-heap)/float64(n))
	}
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Fatalf("a lease is lost: %v", err)
		}
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
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

// goroutineWatch counts the goroutines every few milliseconds.
type goroutineWatch struct{ most atomic.Int64 }

func watchGoroutines(tb testing.TB) *goroutineWatch {
	w := &goroutineWatch{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if n := int64(runtime.NumGoroutine()); n > w.most.Load() {
					w.most.Store(n)
				}
			case <-stop:
				return
			}
		}
	}()
	tb.Cleanup(func() { close(stop); <-stopped })
	return w
}

// reset returns the highest count since the last reset, including the present one.
func (w *goroutineWatch) reset() int {
	now := int64(runtime.NumGoroutine())
	return int(max(now, w.most.Swap(now)))
}

// heapInUse is the size of the live objects in the heap.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // sync.Pool frees its objects in the second one
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
