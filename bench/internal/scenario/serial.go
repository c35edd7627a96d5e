package scenario

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

// block is the number of locks that a subject takes before the next subject: a machine's speed
// changes within seconds, and all subjects need the same share of it.
const block = 50

// serial measures one acquisition and release of a free key by one goroutine, without others. In a
// round all subjects share the window.
func (b *Bench) serial(ctx context.Context) (*Outcome, error) {
	names := subject.Free()
	p50, inRedis, err := b.serialTimes(ctx, "serial", b.Pace.Serial, names)
	if err != nil {
		return nil, err
	}
	return &Outcome{
		Title:  "one goroutine, a free key: acquire and release",
		Rounds: b.Pace.Serial.N,
		Rows:   rows(names, column{"p50_us", "p50 µs", p50}, column{"redis_us", "µs in Redis", inRedis}),
		Ratios: []Ratio{
			ratio("serial_vs_raw", subject.Raw, p50[subject.Ours], p50[subject.Raw]),
			ratio("serial_vs_redislock", subject.Bsm, p50[subject.Ours], p50[subject.Bsm]),
			ratio("serial_redis_vs_raw", subject.Raw, inRedis[subject.Ours], inRedis[subject.Raw]),
		},
	}, nil
}

// tracing is serial of this library alone: without an Observer, with tracing on no-op providers, and on
// the SDK of OpenTelemetry.
func (b *Bench) tracing(ctx context.Context) (*Outcome, error) {
	none, off, on, unbatched := subject.Unobserved, subject.TracingOff, subject.TracingOn, subject.TracingSync
	names := []string{none, off, on, unbatched, subject.Woken}
	p50, _, err := b.serialTimes(ctx, "tracing", b.Pace.Tracing, names)
	if err != nil {
		return nil, err
	}
	return &Outcome{
		Title:  "one goroutine, a free key: acquire and release with OpenTelemetry",
		Rounds: b.Pace.Tracing.N,
		Rows:   rows(names, column{"p50_us", "p50 µs", p50}),
		Ratios: []Ratio{
			ratio("tracing_off_vs_none", none, p50[off], p50[none]),
			ratio("tracing_on_vs_none", none, p50[on], p50[none]),
			ratio("tracing_sync_vs_none", none, p50[unbatched], p50[none]),
		},
	}, nil
}

// serialTimes returns the median time of an acquisition and release of each subject, and for how long
// Redis has run its commands, in µs.
func (b *Bench) serialTimes(ctx context.Context, scenario string, pace Rounds, names []string) (p50, inRedis figures, err error) {
	lockers, closeAll, err := openAll(b, names, subject.Open)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll()
	times := make([]time.Duration, 0, block)
	for _, name := range names { // warm-up: connections, scripts, caches
		for range 4 {
			if _, err := pairs(ctx, lockers[name], "warm-up", times); err != nil {
				return nil, nil, err
			}
		}
	}

	p50, inRedis = figures{}, figures{}
	for n := range pace.N {
		order := b.round(scenario, n, pace.N, names)
		taken, served := map[string][]time.Duration{}, map[string]time.Duration{}
		for sweep, end := 0, time.Now().Add(pace.Window); time.Now().Before(end) || sweep == 0; sweep++ {
			for _, name := range rotated(order, sweep) {
				before, err := b.serverTime(ctx, name)
				if err != nil {
					return nil, nil, err
				}
				times, err := pairs(ctx, lockers[name], "serial-"+name, times)
				if err != nil {
					return nil, nil, err
				}
				after, err := b.serverTime(ctx, name)
				if err != nil {
					return nil, nil, err
				}
				taken[name] = append(taken[name], times...)
				served[name] += after - before
			}
		}
		for _, name := range names {
			p50.add(name, micros(stats.Quantile(taken[name], 0.5)))
			if served[name] > 0 {
				inRedis.add(name, micros(served[name])/float64(len(taken[name])))
			}
		}
	}
	return p50, inRedis, nil
}

// pairs acquires and releases a block of times and returns how long each took, in the memory of times.
func pairs(ctx context.Context, l subject.Locker, key string, times []time.Duration) ([]time.Duration, error) {
	times = times[:0]
	for range block {
		began := time.Now()
		held, err := l.Acquire(ctx, key)
		if err != nil {
			return nil, err
		}
		if err := held.Release(ctx); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}
