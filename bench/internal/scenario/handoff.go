package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
)

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
func (b *Bench) handoff(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.Handoff, subject.Contended()
	var p50, longest, ping, vs = figures{}, figures{}, figures{}, figures{}
	for n := range pace.N {
		for _, s := range b.round("handoff", n, pace.N, names) {
			window := pace.Window
			if s != subject.Ours && pace.Peers > 0 {
				window = pace.Peers
			}
			passes, pings, err := b.passToAndFro(ctx, s, window)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			pass, rtt := stats.Quantile(passes, 0.5), stats.Quantile(pings, 0.5)
			p50.add(s, micros(pass))
			longest.add(s, micros(stats.Quantile(passes, 1)))
			ping.add(s, micros(rtt))
			vs.add(s, float64(pass)/float64(rtt))
		}
	}
	return &Outcome{
		Title:  "two processes, one key: from release in one to the grant in the other",
		Rounds: pace.N,
		Rows: rows(names,
			column{"p50_us", "p50 µs", p50},
			column{"max_us", "longest µs", longest},
			column{"ping_us", "PING µs", ping},
			column{"vs_rtt", "p50 / PING", vs},
		),
		Ratios: []Ratio{{"handoff_vs_rtt", "PING", stats.SpreadOf(vs[subject.Ours])}},
	}, nil
}

// passToAndFro lets two processes pass a lock to and fro for the time of the window. It returns the
// time of each pass, and of each PING before it.
func (b *Bench) passToAndFro(ctx context.Context, name string, window time.Duration) (passes, pings []time.Duration, err error) {
	members, err := startAll(ctx, 2, relayRole, relayTask{name, b.Addr, b.key("handoff")})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, closeAll(members)) }()
	for _, m := range members {
		if err := m.Receive(&ready{}); err != nil {
			return nil, nil, err
		}
	}
	holder, waiter := members[0], members[1]
	if _, err := ask(holder, doAcquire, calls); err != nil {
		return nil, nil, err
	}
	if _, err := receive(holder, holds); err != nil {
		return nil, nil, err
	}
	for end := time.Now().Add(window); time.Now().Before(end) || len(passes) == 0; {
		took, rtt, err := b.pass(ctx, name, holder, waiter)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, nil, err
		}
		passes, pings = append(passes, took), append(pings, rtt)
		if err != nil {
			break
		}
		holder, waiter = waiter, holder
	}
	return passes, pings, nil
}

// pass hands the lock from holder to waiter. With os.ErrDeadlineExceeded, the times are valid, and
// the waiter has ended.
func (b *Bench) pass(ctx context.Context, name string, holder, waiter *childproc.Child) (took, rtt time.Duration, err error) {
	if _, err := ask(waiter, doAcquire, calls); err != nil {
		return 0, 0, err
	}
	rest := settleMin + rand.N(settleMax-settleMin) + rand.N(subject.Pause(name)+1)
	sleep(ctx, rest/2)
	ping, err := ask(holder, doPing, pinged)
	if err != nil {
		return 0, 0, err
	}
	sleep(ctx, rest/2)
	from, err := ask(holder, doRelease, released)
	if err != nil {
		return 0, 0, err
	}
	b.addFaults(name, from.Faults)
	var to relayEvent
	err = waiter.ReceiveWithin(lost, &to)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return lost, ping.Took, err
	case err != nil:
		return 0, 0, err
	case to.What != holds:
		return 0, 0, unexpected(holds, to)
	}
	if to.At < from.At {
		return 0, 0, errors.New("the waiter held the lock before its holder had begun to release it")
	}
	return to.At.Sub(from.At), ping.Took, nil
}

// ask gives a command to a process and returns the answer.
func ask(m *childproc.Child, what, answer string) (relayEvent, error) {
	if err := m.Send(what); err != nil {
		return relayEvent{}, err
	}
	return receive(m, answer)
}

// receive waits for an answer of a process.
func receive(m *childproc.Child, answer string) (e relayEvent, err error) {
	if err := m.Receive(&e); err != nil {
		return e, err
	}
	if e.What != answer {
		return e, unexpected(answer, e)
	}
	return e, nil
}

func unexpected(answer string, e relayEvent) error {
	return fmt.Errorf("instead of %q: %s", answer, e.What)
}
