package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

const processes = 4

// contest measures a lock that processes compete for: 4 with some goroutines each, all of which want one
// key, and hold it for a time of sleep.
//
// The ideal is one goroutine that only sleeps, again and again, as if a handoff cost nothing. It wakes up
// late as the others do. Every round measures it, half before this library and half after. Its waits are
// fair: those of goroutines that all take turns at that pace.
func contest(goroutines int, hold time.Duration, names ...string) func(context.Context, *Bench) (*Outcome, error) {
	return func(ctx context.Context, b *Bench) (*Outcome, error) {
		around := append([]string{subject.Ideal, names[0], subject.Ideal}, names[1:]...)
		rate, calls, share, p50, p99, longest := Figures{}, Figures{}, Figures{}, Figures{}, Figures{}, Figures{}
		waits := map[string][]time.Duration{}
		for n := range b.pace.N {
			sums := map[string]crossSum{}
			ideal := 0.0
			for _, s := range b.round(n, around) {
				sum, err := b.contend(ctx, s, goroutines, hold)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s, err)
				}
				sums[s] = sum
				if s == subject.Ideal {
					ideal += sum.perSecond / 2
				}
			}
			fair := float64(processes*goroutines) / ideal * 1000 // ms
			rate.add(subject.Ideal, ideal)
			p99.add(subject.Ideal, fair)
			longest.add(subject.Ideal, fair)
			for _, s := range names {
				sum := sums[s]
				rate.add(s, sum.perSecond)
				p50.add(s, micros(quantile(sum.waits, 0.5))/1000)
				p99.add(s, micros(quantile(sum.waits, 0.99))/1000)
				longest.add(s, micros(quantile(sum.waits, 1))/1000)
				if sum.callsPerAcquisition > 0 {
					calls.add(s, sum.callsPerAcquisition)
				}
				share.add(s, sum.minMaxShare)
				waits[s] = append(waits[s], sum.waits...)
			}
		}
		return &Outcome{Subjects: append(slices.Clone(names), subject.Ideal), Waits: waits, Columns: []Column{
			{"per_s", "acquisitions/s", rate},
			{"p50_wait_ms", "p50 wait ms", p50},
			{"p99_wait_ms", "p99 wait ms", p99},
			{"max_wait_ms", "max wait ms", longest},
			{"calls_per_acquisition", "calls/acquisition", calls},
			{"min_max_share", "min/max share", share},
		}}, nil
	}
}

// crossSum is what all goroutines of all processes have counted.
type crossSum struct {
	perSecond           float64
	callsPerAcquisition float64
	minMaxShare         float64
	waits               []time.Duration
}

// contend runs the processes of one subject on one key, and counts.
func (b *Bench) contend(ctx context.Context, name string, goroutines int, hold time.Duration,
) (sum crossSum, err error) {
	task := crowdTask{Subject: name, Addr: b.addr(name), Key: b.key(), Goroutines: goroutines, Hold: hold}
	n, length := processes, b.pace.Window
	if name == subject.Ideal {
		n, task.Goroutines = 1, 1
		length /= 2 // it has two turns
	}
	members, closeAll, err := start(ctx, n, crowdRole, task)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	from := time.Now().Add(b.pace.Settle)
	window := crowdWindow{From: from, To: from.Add(length)}
	for _, m := range members {
		if err := m.Send(window); err != nil {
			return sum, err
		}
	}
	sleep(ctx, time.Until(window.From))
	calls, _, err := b.during(ctx, name, func() error {
		sleep(ctx, time.Until(window.To))
		return nil
	})
	if err != nil {
		return sum, err
	}
	results := make([][]crowdMember, len(members))
	for i, m := range members {
		if err := m.Receive(&results[i]); err != nil {
			return sum, err
		}
	}
	return sumUp(results, calls, length), nil
}

func sumUp(results [][]crowdMember, calls int64, window time.Duration) (sum crossSum) {
	var counts []int
	acquired := 0
	for _, r := range results {
		for _, m := range r {
			counts = append(counts, len(m.Waits))
			acquired += len(m.Waits)
			sum.waits = append(sum.waits, m.Waits...)
			if m.Unfinished > 0 {
				sum.waits = append(sum.waits, m.Unfinished)
			}
		}
	}
	sum.perSecond = float64(acquired) / window.Seconds()
	// Without any acquisition, one more would not change these figures.
	sum.callsPerAcquisition = float64(calls) / float64(max(1, acquired))
	sum.minMaxShare = float64(slices.Min(counts)) / float64(max(1, slices.Max(counts)))
	return sum
}
