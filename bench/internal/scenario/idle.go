package scenario

import (
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

const idleWaiters = 1000

// idle measures the cost of waiting to the server: the commands that a thousand waiters of one
// client send, each for a key of its own that is not released. The holders have another client,
// which is not counted.
func (b *Bench) idle(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.Idle, subject.Contended()
	calls := rounds{}
	for n := range pace.N {
		for _, s := range b.round("idle", n, pace.N, names) {
			settle, window := pace.Settle, pace.Window
			if s != subject.Ours && pace.Peers > 0 {
				settle, window = min(pace.Settle, pace.Peers), pace.Peers
			}
			perWaiter, err := b.linger(ctx, s, settle, window)
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

// linger lets waiters of a subject wait and returns how many commands each sends per second.
func (b *Bench) linger(ctx context.Context, name string, settle, window time.Duration) (perWaiter float64, err error) {
	holders, err := subject.Open(name, subject.Setup{Addr: b.Addr, TTL: ttl})
	if err != nil {
		return 0, err
	}
	defer holders.Close()
	key := b.key("idle")
	var keys []string
	for i := range idleWaiters {
		keys = append(keys, key+"-"+strconv.Itoa(i))
	}
	release, err := holdAll(ctx, holders, keys)
	defer release()
	if err != nil {
		return 0, err
	}

	var commands wire.Counter
	waiters, err := subject.Open(name, subject.Setup{Addr: b.Addr, TTL: ttl, Commands: &commands})
	if err != nil {
		return 0, err
	}
	defer waiters.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for i, key := range keys {
		all.Go(func() {
			// Real waiters do not come at the same moment.
			sleep(ctx, settle*time.Duration(i)/idleWaiters)
			_, err := waiters.Acquire(ctx, key)
			if err == nil {
				err = errors.New("a waiter was given a lock that was held")
			}
			cancel(err) // of no effect after the end
		})
	}
	sleep(ctx, settle)
	before, began := commands.Commands(), time.Now()
	sleep(ctx, window)
	sent, took := commands.Commands()-before, time.Since(began)
	cancel(errOver)
	all.Wait()
	if cause := context.Cause(ctx); cause != errOver {
		return 0, cause
	}
	return float64(sent) / idleWaiters / took.Seconds(), nil
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
