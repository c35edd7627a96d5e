package distlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
)

// Many goroutines use few keys over two Lockers, with cancellations and lost answers at random. The work
// never overlaps, fences rise, each lease ends once, and nothing is left behind.
func TestHammer(t *testing.T) {
	s := newService()
	s.Inject(func(c drivertest.Call) drivertest.Fault {
		switch rand.N(40) {
		case 0:
			return drivertest.Fault{Before: errBroken}
		case 1:
			return drivertest.Fault{After: errBroken}
		}
		return drivertest.Fault{}
	})
	seen := &ends{t: t}
	opts := distlock.Options{TTL: time.Minute, RenewEvery: 10 * time.Millisecond, Observer: seen}
	lockers := []*distlock.Locker{s.locker(t, opts), s.locker(t, opts)}
	const keys = 3
	var (
		wg     sync.WaitGroup
		inside [keys]atomic.Int32
		fences [keys]int64 // guarded by the locks under test
		runs   atomic.Int64
	)
	stop := time.Now().Add(2 * time.Second)
	// On a machine that is busy with other things it goes on until it has done something.
	goesOn := func() bool {
		return time.Now().Before(stop) || runs.Load() < 100 && time.Now().Before(stop.Add(time.Minute))
	}
	for g := range 24 {
		wg.Go(func() {
			for goesOn() {
				k := rand.N(keys)
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				lease, err := lockers[g%2].Acquire(ctx, strconv.Itoa(k))
				if err == nil {
					if inside[k].Add(1) != 1 {
						t.Error("S1: two at once")
					}
					if lease.Fence() <= fences[k] {
						t.Errorf("S2: fence %d after %d", lease.Fence(), fences[k])
					}
					fences[k] = lease.Fence()
					runs.Add(1)
					if rand.N(2) == 0 {
						time.Sleep(rand.N(2 * time.Millisecond))
					}
					inside[k].Add(-1)
					for errors.Is(lease.Release(ctx), distlock.ErrUnavailable) {
					}
				} else if !errors.Is(err, distlock.ErrNotAcquired) && !errors.Is(err, distlock.ErrUnavailable) && ctx.Err() == nil {
					t.Errorf("Acquire: %v", err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s.Inject(nil)
	for _, l := range lockers {
		mustClose(t, l)
	}
	seen.wantAll()
	if runs.Load() < 100 {
		t.Errorf("%d runs only, this tests nothing", runs.Load())
	}
	t.Logf("%d critical sections", runs.Load())
}
