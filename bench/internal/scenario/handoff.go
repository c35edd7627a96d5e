package scenario

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// ping is a round trip beside the handoffs.
const ping = "PING"

// Before the holder releases, the waiter rests for a random time between these.
const (
	settleMin = 20 * time.Millisecond
	settleMax = 50 * time.Millisecond
)

// handoff measures the way of a lock from a holder to the waiter of another Locker with a client of
// its own: from before Release until Acquire has returned. Before every release it measures a PING,
// after the same kind of rest.
func handoff(ctx context.Context, b *Bench) (*Outcome, error) {
	var both [2]subject.Locker
	for i := range both {
		opened, setup, err := openAll(b, subject.Lockers, subject.Ours)
		defer setup.Close()
		if err != nil {
			return nil, err
		}
		both[i] = opened[subject.Ours]
		if err := connect(ctx, both[i], b.key(), 1); err != nil {
			return nil, err
		}
	}
	client := redis.NewClient(&redis.Options{Addr: b.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	p50 := Figures{}
	for n := range b.pace.N {
		b.round(n, []string{subject.Ours})
		passes, pings, err := passToAndFro(ctx, both, b.key(), client, b.pace.Window)
		if err != nil {
			return nil, err
		}
		p50.add(subject.Ours, micros(quantile(passes, 0.5)))
		p50.add(ping, micros(quantile(pings, 0.5)))
	}
	return &Outcome{Subjects: []string{subject.Ours, ping}, Columns: []Column{{"p50_us", "p50 µs", p50}}}, nil
}

// passToAndFro lets two Lockers pass a lock to and fro for the time of the window. It returns the
// time of each pass, and of each PING before it.
func passToAndFro(ctx context.Context, both [2]subject.Locker, key string, client *redis.Client, window time.Duration,
) (passes, pings []time.Duration, err error) {
	type grant struct {
		held subject.Held
		at   time.Time
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // after an error, of the waiter
	held, err := both[0](ctx, key)
	if err != nil {
		return nil, nil, err
	}
	for end := time.Now().Add(window); time.Now().Before(end) || len(passes) == 0; {
		waiter, granted := both[(len(passes)+1)%2], make(chan grant, 1)
		go func() {
			held, err := waiter(ctx, key)
			granted <- grant{held, time.Now(), err}
		}()
		rest := settleMin + rand.N(settleMax-settleMin)
		sleep(ctx, rest/2)
		asked := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return nil, nil, err
		}
		pings = append(pings, time.Since(asked))
		sleep(ctx, rest/2)
		from := time.Now()
		release(ctx, held)
		to := <-granted
		if to.err != nil {
			return nil, nil, to.err
		}
		held = to.held
		passes = append(passes, to.at.Sub(from))
	}
	return passes, pings, held.Release(ctx)
}
