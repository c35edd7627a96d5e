package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/bench/internal/clock"
	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
)

const (
	crossProcesses  = 4
	crossGoroutines = 8
	crossHold       = time.Millisecond
	// head is how long before the beginning the processes are told of it: long enough for all to
	// have heard.
	head = 20 * time.Millisecond
)

// cross measures a lock that processes compete for: 4 with 8 goroutines each, all of which want one
// key, and hold it for a millisecond of sleep. The ideal is one goroutine that only sleeps, again
// and again, as if a handoff cost nothing. It wakes up late as the others do. Every round measures
// it, half before this library and half after. A fair wait is 32 cycles of the ideal: all 32 take
// turns at that pace.
func (b *Bench) cross(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.Cross, subject.Contended()
	var rate, ofIdeal, p50, p99, longest, calls, share, p99Fair, longestFair = figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}
	waits := map[string][]time.Duration{}
	var fairs []float64
	for n := range pace.N {
		sums := map[string]crossSum{}
		ideal := 0.0
		for _, s := range b.round("cross", n, pace.N, aroundOurs(names)) {
			sum, err := b.contend(ctx, s, crossHold, pace)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			sums[s] = sum
			b.addFaults(s, sum.faults)
			if s == subject.Ideal {
				ideal += sum.perSecond / 2
			}
		}
		fair := time.Duration(crossProcesses * crossGoroutines / ideal * float64(time.Second))
		fairs = append(fairs, float64(fair))
		rate.add(subject.Ideal, ideal)
		for _, s := range names {
			sum := sums[s]
			rate.add(s, sum.perSecond)
			ofIdeal.add(s, sum.perSecond/ideal)
			p50.add(s, millis(stats.Quantile(sum.waits, 0.5)))
			p99.add(s, millis(stats.Quantile(sum.waits, 0.99)))
			longest.add(s, millis(stats.Quantile(sum.waits, 1)))
			p99Fair.add(s, float64(stats.Quantile(sum.waits, 0.99))/float64(fair))
			longestFair.add(s, float64(stats.Quantile(sum.waits, 1))/float64(fair))
			calls.add(s, sum.callsPerAcquisition)
			share.add(s, sum.minMaxShare)
			waits[s] = append(waits[s], sum.waits...)
		}
	}
	ours := func(key, against string, values figures) Ratio {
		return Ratio{key, against, stats.SpreadOf(values[subject.Ours])}
	}
	return &Outcome{
		Title:  "4 processes of 8 goroutines, one key, held for 1 ms",
		Rounds: pace.N,
		Rows: rows(append(names, subject.Ideal),
			column{"per_s", "acquisitions/s", rate},
			column{"of_ideal", "of ideal", ofIdeal},
			column{"p50_wait_ms", "p50 wait ms", p50},
			column{"p99_wait_ms", "p99 wait ms", p99},
			column{"max_wait_ms", "max wait ms", longest},
			column{"calls_per_acquisition", "calls/acquisition", calls},
			column{"min_max_share", "min/max share", share},
		),
		Ratios: []Ratio{
			ours("cross_vs_ideal", "no lock", ofIdeal),
			ours("cross_p99_wait_vs_fair", "fair wait", p99Fair),
			ours("cross_max_wait_vs_fair", "fair wait", longestFair),
			ours("cross_calls_per_acquisition", "", calls),
			ours("cross_min_max_share", "", share),
		},
		Waits: waits,
		Fair:  time.Duration(stats.Median(fairs)),
	}, nil
}

// aroundOurs returns the names with the ideal before and after this library, each once.
func aroundOurs(names []string) (around []string) {
	for _, s := range names {
		if s == subject.Ours {
			around = append(around, subject.Ideal, s, subject.Ideal)
		} else {
			around = append(around, s)
		}
	}
	return around
}

// crossSum is what all goroutines of all processes have counted.
type crossSum struct {
	perSecond           float64
	callsPerAcquisition float64
	minMaxShare         float64
	acquired, remote    int64
	waits               []time.Duration
	overtaken           []int // how many later calls of other processes were granted first, for each acquisition
	faults              Faults
}

// contend runs the processes of one subject on one key, and counts.
func (b *Bench) contend(ctx context.Context, name string, hold time.Duration, pace Rounds) (sum crossSum, err error) {
	task := crowdTask{Subject: name, Addr: b.addr(name), Key: b.key("cross"), Goroutines: crossGoroutines, Hold: hold}
	if name == subject.Ideal {
		task.Goroutines = 1
		pace.Window /= 2 // it has two turns
		return b.count(ctx, pace, task)
	}
	return b.count(ctx, pace, slices.Repeat([]crowdTask{task}, crossProcesses)...)
}

// count starts a process for each task, and counts what they do in the window.
func (b *Bench) count(ctx context.Context, pace Rounds, tasks ...crowdTask) (sum crossSum, err error) {
	var members []*childproc.Child
	defer func() { err = errors.Join(err, closeAll(members)) }()
	for _, task := range tasks {
		started, err := startAll(ctx, 1, crowdRole, task)
		if err != nil {
			return sum, err
		}
		members = append(members, started...)
	}
	for _, m := range members {
		if err := m.Receive(&ready{}); err != nil {
			return sum, err
		}
	}
	begin := clock.Now().Add(head)
	from := begin.Add(pace.Settle)
	window := crowdWindow{Begin: begin, From: from, To: from.Add(pace.Window)}
	for _, m := range members {
		if err := m.Send(window); err != nil {
			return sum, err
		}
	}
	results := make([]crowdResult, len(members))
	for i, m := range members {
		if err := m.Receive(&results[i]); err != nil {
			return sum, err
		}
	}
	sum = sumUp(results, pace.Window)
	sum.overtaken = overtakings(results)
	return sum, nil
}

func sumUp(results []crowdResult, window time.Duration) (sum crossSum) {
	var commands int64
	var counts []int
	acquired := 0
	for _, r := range results {
		commands += r.Commands
		sum.remote += r.Remote
		for _, m := range r.Members {
			counts = append(counts, len(m.Waits))
			acquired += len(m.Waits)
			sum.waits = append(sum.waits, m.Waits...)
			sum.faults.merge(m.Faults)
			if m.Unfinished > 0 {
				sum.waits = append(sum.waits, m.Unfinished)
			}
		}
	}
	sum.acquired = int64(acquired)
	sum.perSecond = float64(acquired) / window.Seconds()
	// Without any acquisition, one more would not change this figure.
	sum.callsPerAcquisition = float64(commands) / float64(max(1, acquired))
	sum.minMaxShare = float64(slices.Min(counts)) / float64(max(1, slices.Max(counts)))
	return sum
}
