package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// block is the number of locks that a subject takes before the next subject: a machine's speed
// changes within seconds, and all subjects need the same share of it.
const block = 50

// serial measures one acquisition and release of a free key by one goroutine, without others. In a
// round all subjects share the window. On PostgreSQL, the bare lock has two UPDATEs, each flushed to disk. On
// five nodes, redsync does without a fencing token.
func serial(names ...string) func(context.Context, *Bench) (*Outcome, error) {
	return func(ctx context.Context, b *Bench) (*Outcome, error) {
		lockers, setup, err := openAll(b, subject.Lockers, names...)
		defer setup.Close()
		if err != nil {
			return nil, err
		}
		for _, name := range names { // warm-up: connections, scripts, caches
			for range 4 {
				if _, err := pairs(ctx, lockers[name], "warm-up", nil); err != nil {
					return nil, err
				}
			}
		}
		p50, inRedis := Figures{}, Figures{}
		for n := range b.pace.N {
			order := b.round(n, names)
			taken, served := map[string][]time.Duration{}, map[string]time.Duration{}
			for sweep, end := 0, time.Now().Add(b.pace.Window); time.Now().Before(end) || sweep == 0; sweep++ {
				for _, name := range rotated(order, sweep) {
					took, err := b.during(ctx, name, func() (err error) {
						taken[name], err = pairs(ctx, lockers[name], "serial-"+name, taken[name])
						return err
					})
					if err != nil {
						return nil, fmt.Errorf("%s: %w", name, err)
					}
					served[name] += took
				}
			}
			for _, name := range names {
				p50.add(name, micros(quantile(taken[name], 0.5)))
				if served[name] > 0 {
					inRedis.add(name, micros(served[name])/float64(len(taken[name])))
				}
			}
		}
		return &Outcome{Subjects: names, Columns: []Column{
			{"p50_us", "p50 µs", p50}, {"redis_us", "µs in Redis", inRedis},
		}}, nil
	}
}

// pairs acquires and releases a block of times and appends how long each took.
func pairs(ctx context.Context, acquire subject.Locker, key string, times []time.Duration) ([]time.Duration, error) {
	for range block {
		began := time.Now()
		held, err := acquire(ctx, key)
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

// during runs do, and returns for how long Redis has run the commands of the subject in this time. It is 0 on
// other servers.
func (b *Bench) during(ctx context.Context, name string, do func() error) (took time.Duration, err error) {
	before, err := b.served(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := b.served(ctx, name)
	return after - before, err
}

// served is what during compares.
func (b *Bench) served(ctx context.Context, name string) (took time.Duration, err error) {
	if b.addr(name) != b.Addr || subject.Sent[name] == nil {
		return 0, nil
	}
	client := redis.NewClient(&redis.Options{Addr: b.Addr})
	defer client.Close()
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for _, command := range subject.Sent[name] {
		_, after, found := strings.Cut(info, "\ncmdstat_"+command+":")
		if !found {
			continue // not yet called
		}
		var calls, micros int64
		if _, err := fmt.Sscanf(after, "calls=%d,usec=%d", &calls, &micros); err != nil {
			return 0, fmt.Errorf("%s in Redis: %w", command, err)
		}
		took += time.Duration(micros) * time.Microsecond
	}
	return took, nil
}
