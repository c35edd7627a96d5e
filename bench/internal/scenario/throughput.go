package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

const (
	parallelGoroutines = 64
	localGoroutines    = 32
)

// parallel measures many goroutines that do not disturb each other: each has a key of its own.
func (b *Bench) parallel(ctx context.Context) (*Outcome, error) {
	names := subject.Free()
	rates, inRedis, err := b.throughput(ctx, "parallel", b.Pace.Parallel, names, parallelGoroutines, false)
	if err != nil {
		return nil, err
	}
	best := rates.best(subject.Peers(names))
	return &Outcome{
		Title:  "64 goroutines, each with its own key",
		Rounds: b.Pace.Parallel.N,
		Rows:   rows(names, column{"per_s", "acquisitions/s", rates}, column{"redis_us", "µs in Redis", inRedis}),
		Ratios: []Ratio{
			ratio("parallel_vs_best_peer", best, rates[subject.Ours], rates[best]),
			ratio("parallel_redis_vs_raw", subject.Raw, inRedis[subject.Ours], inRedis[subject.Raw]),
		},
	}, nil
}

// local measures the handoffs within one process: many goroutines want the same key, and each
// holder releases it at once.
func (b *Bench) local(ctx context.Context) (*Outcome, error) {
	names := subject.Contended()
	rates, _, err := b.throughput(ctx, "local", b.Pace.Local, names, localGoroutines, true)
	if err != nil {
		return nil, err
	}
	best := rates.best(subject.Peers(names))
	return &Outcome{
		Title:  "one process, 32 goroutines, one key, released at once",
		Rounds: b.Pace.Local.N,
		Rows:   rows(names, column{"per_s", "acquisitions/s", rates}),
		Ratios: []Ratio{ratio("local_vs_best_peer", best, rates[subject.Ours], rates[best])},
	}, nil
}

// throughput returns the acquisitions per second of every subject in every round, and how long Redis
// has run the commands of each.
func (b *Bench) throughput(ctx context.Context, name string, pace Rounds, names []string, goroutines int, shared bool,
) (rates, inRedis figures, err error) {
	lockers, closeAll, err := openAll(b, names, subject.Open)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll()
	rates, inRedis = figures{}, figures{}
	for n := range pace.N {
		for _, s := range b.round(name, n, pace.N, names) {
			keys := make([]string, goroutines)
			key := b.key(name)
			for i := range keys {
				keys[i] = key
				if !shared {
					keys[i] += "-" + strconv.Itoa(i)
				}
			}
			before, err := b.serverTime(ctx, s)
			if err != nil {
				return nil, nil, err
			}
			rate, n, faults, err := rush(ctx, lockers[s], keys, pace.Settle, pace.Window)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", s, err)
			}
			after, err := b.serverTime(ctx, s)
			if err != nil {
				return nil, nil, err
			}
			rates.add(s, rate)
			if after > before {
				inRedis.add(s, micros(after-before)/float64(n))
			}
			b.addFaults(s, faults)
		}
	}
	return rates, inRedis, nil
}

// tally is the count of one goroutine. It has a cache line of its own: hundreds of thousands of
// acquisitions per second must not wait for each other's counters.
type tally struct {
	n      atomic.Int64
	faults Faults // read after the end
	_      [96]byte
}

// rush lets a goroutine per key acquire and release it for as long as the two times say. It returns
// the acquisitions per second of the second time, and the number of all. It reads the counters at both
// ends, and no clock per acquisition.
func rush(ctx context.Context, l subject.Locker, keys []string, settle, window time.Duration,
) (perSecond float64, n int64, faults Faults, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	uncancelled := context.WithoutCancel(ctx)
	var all sync.WaitGroup
	tallies := make([]tally, len(keys))
	for i, key := range keys {
		all.Go(func() {
			for ctx.Err() == nil {
				held, err := l.Acquire(ctx, key)
				if err != nil {
					cancel(err) // of no effect after the end
					return
				}
				tallies[i].n.Add(1)
				tallies[i].faults.add(held.Release(uncancelled))
			}
		})
	}
	count := func() (sum int64) {
		for i := range tallies {
			sum += tallies[i].n.Load()
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
		return 0, 0, faults, cause
	}
	for i := range tallies {
		faults.merge(tallies[i].faults)
	}
	return float64(after-before) / took.Seconds(), count(), faults, nil
}

// errOver ends a measurement.
var errOver = errors.New("the time is over")

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
