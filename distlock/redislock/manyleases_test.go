//go:build unix

package redislock_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var holdFor = flag.Duration("hold", time.Minute, "how long BenchmarkHeld holds its leases")

// BenchmarkHeld holds 10,000 leases of one Locker for a minute and prints the cost for the process,
// see cost.
func BenchmarkHeld(b *testing.B) {
	for b.Loop() {
		c := hold(b, 10_000, *holdFor, distlock.Options{TTL: 10 * time.Second})
		b.ReportMetric(float64(c.lost), "lost")
		b.ReportMetric(float64(c.failed), "failed-renewals")
		b.ReportMetric(float64(c.goroutines), "goroutines")
		b.ReportMetric(c.heap, "heap-B/lease")
		b.ReportMetric(c.stacks, "stack-B/lease")
		b.ReportMetric(float64(c.renewed), "renewals")
		b.ReportMetric(c.perTrip(), "renewals/round-trip")
		b.ReportMetric(c.cpu, "%-of-a-core")
		b.ReportMetric(c.serverCPU, "%-of-a-core-redis")
	}
	b.ReportMetric(0, "ns/op") // hides the mean
}

// The bounds of 10,000 leases hold for fewer, too. BenchmarkHeld measures CPU, because the race
// detector changes it. The TTL is longer than the stalls of a busy machine.
func TestLocker_L_manyLeasesCostLittle(t *testing.T) {
	const n = 2_000
	c := cost{failed: 1}
	for tries := 0; c.failed > 0 && tries < 5; tries++ { // a renewal that fails on a busy machine costs more
		c = hold(t, n, 3*time.Second, distlock.Options{TTL: time.Minute, RenewEvery: time.Second})
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
	if c.perTrip() < 100 {
		t.Errorf("%.0f renewals per round trip, want 100 at least", c.perTrip())
	}
	// The buffers of the connections are nearly half of it. More leases would share them.
	if c.heap > 2<<10 {
		t.Errorf("%.0f bytes of heap per lease, want 2048 at the most", c.heap)
	}
}

// cost is the cost of held leases, without acquire and release.
type cost struct {
	lost       int
	renewed    int64   // successful renewals
	failed     int64   // other renewals
	trips      int64   // round trips on all connections of the process
	goroutines int     // more than without the Locker and its client, at the most
	heap       float64 // bytes per lease, after garbage collection
	stacks     float64 // bytes per lease
	cpu        float64 // of the process, user and system, in percent of a core
	serverCPU  float64 // of the server
}

func (c cost) perTrip() float64 { return float64(c.renewed) / float64(max(c.trips, 1)) }

// hold acquires n leases, holds them for d and releases them. The test fails if the server does not
// have them while they are held, or has them afterwards.
func hold(tb testing.TB, n int, d time.Duration, opts distlock.Options) (c cost) {
	ctx := context.Background()
	server := servers.StartRedis(tb)
	admin := newClient(tb, server)
	serverSeconds(tb, admin) // connects, so later measurements do not count the connection

	leases := make([]*distlock.Lease, n)
	goroutines := watchGoroutines(tb)
	before, heap, stacks := goroutines.reset(), heapInUse(), stacksInUse()

	var wire wire
	client := newClient(tb, server, redis.Options{Dialer: wire.dial})
	var renewed, failed atomic.Int64
	opts.Observer = onEnd(func(op *distlock.Operation) {
		switch {
		case op.Scheduled && op.Err == nil:
			renewed.Add(1)
		case op.Scheduled:
			failed.Add(1)
		}
	})
	l := newLocker(tb, client, opts)
	began := time.Now()
	concurrently(tb, n, func(i int) (err error) {
		leases[i], err = l.Acquire(ctx, fmt.Sprintf("session-%06d", i))
		return err
	})
	tb.Logf("%d leases acquired in %s", n, time.Since(began).Round(time.Millisecond))
	time.Sleep(time.Second) // goroutines of Acquire wait a while for more calls

	goroutines.reset()
	renewed0, failed0, trips0 := renewed.Load(), failed.Load(), wire.trips.Load()
	start, cpu, serverCPU := time.Now(), cpuSeconds(tb), serverSeconds(tb, admin)
	time.Sleep(d)
	percent := func(seconds float64) float64 { return 100 * seconds / time.Since(start).Seconds() }
	c.cpu, c.serverCPU = percent(cpuSeconds(tb)-cpu), percent(serverSeconds(tb, admin)-serverCPU)
	c.renewed, c.failed, c.trips = renewed.Load()-renewed0, failed.Load()-failed0, wire.trips.Load()-trips0
	c.goroutines = goroutines.reset() - before
	c.stacks = float64(stacksInUse()-stacks) / float64(n)
	c.heap = float64(heapInUse()-heap) / float64(n)
	for range 4 { // a batch under way uses memory, too
		time.Sleep(50 * time.Millisecond)
		c.heap = min(c.heap, float64(heapInUse()-heap)/float64(n))
	}

	for _, lease := range leases {
		if lease.Err() != nil {
			c.lost++
		}
	}
	if c.lost > 0 {
		tb.Errorf("%d leases lost", c.lost)
	}
	concurrently(tb, n, func(i int) error {
		info, err := l.Inspect(ctx, leases[i].Key())
		if err != nil {
			return err
		}
		if !info.Held || info.Fence != leases[i].Fence() || info.TTL <= 0 || info.TTL > opts.TTL {
			return fmt.Errorf("the server has %+v, the lease's token is %d", info, leases[i].Fence())
		}
		return leases[i].Release(ctx)
	})
	left := admin.Scan(ctx, 0, "*:lock", 1000).Iterator()
	for left.Next(ctx) {
		if held := admin.Get(ctx, left.Val()).Val(); !isFree(held) {
			tb.Errorf("%s is left: %s", left.Val(), held)
		}
	}
	if err := left.Err(); err != nil {
		tb.Error(err)
	}
	return c
}

// concurrently calls do for 0 to n-1, 16 at a time. Errors end the test.
func concurrently(tb testing.TB, n int, do func(i int) error) {
	tb.Helper()
	var (
		next, failed atomic.Int64
		first        error
		once         sync.Once
		all          sync.WaitGroup
	)
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.Add(1)
					once.Do(func() { first = fmt.Errorf("%d: %w", i, err) })
				}
			}
		})
	}
	all.Wait()
	if first != nil {
		tb.Fatalf("%d of %d leases failed, as lease %v", failed.Load(), n, first)
	}
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

func stacksInUse() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.StackInuse)
}

// cpuSeconds is the CPU time of this process so far.
func cpuSeconds(tb testing.TB) float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// serverSeconds is the CPU time of the server so far.
func serverSeconds(tb testing.TB, client *redis.Client) (sum float64) {
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += seconds
		}
	}
	return sum
}
