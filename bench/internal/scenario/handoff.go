package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
)

// ping is a round trip beside the handoffs of this library.
const ping = "PING"

// Before the holder releases, the waiter rests for a random time between these, and a random part
// of its subject's pause.
const (
	settleMin = 20 * time.Millisecond
	settleMax = 50 * time.Millisecond
)

// lost is the time after a release at which the round ends without the waiter. Its wait then counts
// with that time: some libraries miss a notification, and do not poll.
const lost = 2 * time.Second

// handoff measures the way of a lock from a holder in one process to a waiter in another: from the
// moment before the call of Release to the moment after Acquire has returned, by a clock that both
// processes read. Before every release the holder also measures a PING, after the same kind of
// rest, because a machine that has just slept answers later.
func handoff(ctx context.Context, b *Bench) (*Outcome, error) {
	names := subject.Contended()
	p50 := Figures{}
	for n := range b.pace.N {
		for _, s := range b.round(n, names) {
			window := b.pace.Window
			if s != subject.Ours {
				window /= 2 // the others pause for longer
			}
			passes, pings, err := b.passToAndFro(ctx, s, window)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			p50.add(s, micros(quantile(passes, 0.5)))
			if s == subject.Ours {
				p50.add(ping, micros(quantile(pings, 0.5)))
			}
		}
	}
	return &Outcome{Subjects: append(names, ping), Columns: []Column{{"p50_us", "p50 µs", p50}}}, nil
}

// passToAndFro lets two processes pass a lock to and fro for the time of the window. It returns the
// time of each pass, and of each PING before it.
func (b *Bench) passToAndFro(ctx context.Context, name string, window time.Duration,
) (passes, pings []time.Duration, err error) {
	members, closeAll, err := start(ctx, 2, relayRole, crowdTask{Subject: name, Addr: b.Addr, Key: b.key()})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	holder, waiter := members[0], members[1]
	if _, err := ask(holder, "acquire"); err != nil {
		return nil, nil, err
	}
	for end := time.Now().Add(window); time.Now().Before(end) || len(passes) == 0; holder, waiter = waiter, holder {
		if err := waiter.Send("acquire"); err != nil {
			return nil, nil, err
		}
		rest := settleMin + rand.N(settleMax-settleMin) + rand.N(subject.Pause(name)+1)
		sleep(ctx, rest/2)
		pinged, err := ask(holder, "ping")
		if err != nil {
			return nil, nil, err
		}
		sleep(ctx, rest/2)
		from, err := ask(holder, "release")
		if err != nil {
			return nil, nil, err
		}
		pings = append(pings, pinged.Took)
		var to relayEvent
		if err := waiter.ReceiveWithin(lost, &to); errors.Is(err, os.ErrDeadlineExceeded) {
			return append(passes, lost), pings, nil // the waiter has ended
		} else if err != nil {
			return nil, nil, err
		}
		if to.At.Before(from.At) {
			return nil, nil, errors.New("the waiter held the lock before its holder had begun to release it")
		}
		passes = append(passes, to.At.Sub(from.At))
	}
	return passes, pings, nil
}

// ask gives a command to a process and returns the answer.
func ask(m *child.Child, what string) (e relayEvent, err error) {
	if err := m.Send(what); err != nil {
		return e, err
	}
	return e, m.Receive(&e)
}

// relayRole is the role of one of two processes that pass a lock to and fro.
const relayRole = "relay"

// relayEvent is what it answers.
type relayEvent struct {
	At   time.Time // of the wall clock, which all processes of a machine share
	Took time.Duration
}

func relay(ctx context.Context, lead *child.Line, task crowdTask) error {
	var setup subject.Setup
	defer setup.Close()
	acquire, err := subject.Lockers[task.Subject](&setup, task.Addr)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: task.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	if err := errors.Join(connect(ctx, acquire, task.Key, 1), client.Ping(ctx).Err(), lead.Send(true)); err != nil {
		return err
	}
	var held subject.Held
	for {
		var do string
		if err := lead.Receive(&do); err != nil {
			return nil // nothing more to do
		}
		event := relayEvent{At: time.Now()}
		switch do {
		case "acquire": // the answer comes when it holds the lock
			held, err = acquire(ctx, task.Key)
			event.At = time.Now()
		case "release": // with the time before the release
			release(ctx, held)
		case "ping":
			err = client.Ping(ctx).Err()
			event.Took = time.Since(event.At)
		}
		if err != nil {
			return err
		}
		if err := lead.Send(event); err != nil {
			return err
		}
	}
}
