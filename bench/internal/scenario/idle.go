package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/bench/internal/wire"
)

// idle measures the cost of waiting to the server: the commands that a thousand waiters of one
// client send, each for a key of its own that is not released. The holders have another client,
// which is not counted.
func (b *Bench) idle(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.Idle, subject.Contended()
	calls := figures{}
	for n := range pace.N {
		for _, s := range b.round("idle", n, pace.N, names) {
			settle, window := pace.Settle, pace.Window
			if s != subject.Ours && pace.Peers > 0 {
				settle, window = min(pace.Settle, pace.Peers), pace.Peers
			}
			perWaiter, err := b.commandsPerWaiter(ctx, s, settle, window)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			calls.add(s, perWaiter)
		}
	}
	return &Outcome{
		Title:  "1,000 waiters of one client for 1,000 keys that stay held",
		Rounds: pace.N,
		Rows:   rows(names, column{"calls_per_waiter_per_s", "calls per waiter and s", calls}),
		Ratios: []Ratio{{"idle_calls_per_waiter_per_s", "", stats.SpreadOf(calls[subject.Ours])}},
	}, nil
}

// commandsPerWaiter returns how many commands each waiter of a subject sends per second.
func (b *Bench) commandsPerWaiter(ctx context.Context, name string, settle, window time.Duration,
) (perWaiter float64, err error) {
	var commands wire.Counter
	keys, waiting := b.newKeys("idle"), subject.Setup{Addr: b.Addr, TTL: ttl, Commands: &commands}
	err = b.waitFor(ctx, name, waiting, keys, settle, func(ctx context.Context) error {
		sleep(ctx, settle)
		before, began := commands.Commands(), time.Now()
		sleep(ctx, window)
		sent, took := commands.Commands()-before, time.Since(began)
		perWaiter = float64(sent) / float64(len(keys)) / took.Seconds()
		return nil
	})
	return perWaiter, err
}

// newKeys returns a new key for each of a thousand waiters or leases.
func (b *Bench) newKeys(prefix string) (keys []string) {
	key := b.key(prefix)
	for i := range cmp.Or(b.leases, 1000) {
		keys = append(keys, key+"-"+strconv.Itoa(i))
	}
	return keys
}

// waitFor lets one client hold the keys and another wait for each of them, while during runs. Real waiters
// do not come at the same moment, so these come one by one in the time of settle.
func (b *Bench) waitFor(ctx context.Context, name string, waiting subject.Setup, keys []string, settle time.Duration,
	during func(ctx context.Context) error) error {
	holders, err := subject.Open(name, subject.Setup{Addr: b.addr(name), TTL: ttl})
	if err != nil {
		return err
	}
	defer holders.Close()
	release, err := holdAll(ctx, holders, keys)
	defer release()
	if err != nil {
		return err
	}
	waiters, err := subject.Open(name, waiting)
	if err != nil {
		return err
	}
	defer waiters.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			sleep(ctx, settle*time.Duration(i)/time.Duration(len(keys)))
			_, err := waiters.Acquire(ctx, key)
			if err == nil {
				err = errors.New("a waiter was given a lock that was held")
			}
			cancel(err) // of no effect after the end
		})
	}
	err = during(ctx)
	cancel(cmp.Or(err, errOver))
	all.Wait()
	if cause := context.Cause(ctx); cause != errOver {
		return cause
	}
	return nil
}

// holdAll acquires all keys and returns what releases those that it has got, also after a failure.
func holdAll(ctx context.Context, l subject.Locker, keys []string) (release func(), err error) {
	const together = 16
	var mu sync.Mutex
	var held []subject.Held
	var errs []error
	each(together, len(keys), func(i int) {
		h, err := l.Acquire(ctx, keys[i])
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		} else {
			held = append(held, h)
		}
	})
	return func() {
		each(together, len(held), func(i int) { _ = held[i].Release(context.WithoutCancel(ctx)) })
	}, errors.Join(errs...)
}

// each calls do for 0 to n-1, in some goroutines.
func each(goroutines, n int, do func(int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}
