package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// throughput measures the acquisitions per second of goroutines, and how long Redis runs their commands. In
// parallel each has a key of its own, so they do not disturb each other. In local they share a key, and each
// holder releases it at once: this measures the handoffs within one process.
func throughput(goroutines int, shared bool, names ...string) func(context.Context, *Bench) (*Outcome, error) {
	return func(ctx context.Context, b *Bench) (*Outcome, error) {
		lockers, setup, err := openAll(b, subject.Lockers, names...)
		defer setup.Close()
		if err != nil {
			return nil, err
		}
		rates, inRedis := Figures{}, Figures{}
		for n := range b.pace.N {
			for _, name := range b.round(n, names) {
				keys := slices.Repeat([]string{b.key()}, goroutines)
				for i := range keys {
					if !shared {
						keys[i] += "-" + strconv.Itoa(i)
					}
				}
				var rate float64
				var acquired int64
				took, err := b.during(ctx, name, func() (err error) {
					rate, acquired, err = rush(ctx, lockers[name], keys, b.pace.Settle, b.pace.Window)
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				rates.add(name, rate)
				inRedis.add(name, micros(took)/float64(acquired))
			}
		}
		return &Outcome{Subjects: names, Columns: []Column{
			{"per_s", "acquisitions/s", rates}, {"redis_us", "µs in Redis", inRedis},
		}}, nil
	}
}

// apart is the distance of the counters of two goroutines. Each has a cache line of its own: hundreds of
// thousands of acquisitions per second must not wait for each other's counters.
const apart = 16

// rush lets a goroutine per key acquire and release it for as long as the two times say. It returns
// the acquisitions per second of the second time, and the number of all. It reads the counters at both
// ends, and no clock per acquisition.
func rush(ctx context.Context, acquire subject.Locker, keys []string, settle, window time.Duration,
) (perSecond float64, n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	uncancelled := context.WithoutCancel(ctx)
	var all sync.WaitGroup
	counters := make([]atomic.Int64, apart*len(keys))
	for i, key := range keys {
		all.Go(func() {
			for ctx.Err() == nil {
				held, err := acquire(ctx, key)
				if err != nil {
					cancel(err) // of no effect after the end
					return
				}
				counters[apart*i].Add(1)
				release(uncancelled, held)
			}
		})
	}
	count := func() (sum int64) {
		for i := range counters {
			sum += counters[i].Load()
		}
		return sum
	}
	sleep(ctx, settle)
	before, began := count(), time.Now()
	sleep(ctx, window)
	after, took := count(), time.Since(began)
	cancel(errOver)
	all.Wait()
	if cause := context.Cause(ctx); cause != errOver {
		return 0, 0, cause
	}
	return float64(after-before) / took.Seconds(), count(), nil
}

// errOver ends a measurement.
var errOver = errors.New("the time is over")
