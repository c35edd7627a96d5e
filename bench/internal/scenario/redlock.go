package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/bench/internal/clock"
	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/testservers"
)

// Quorum are the addresses of independent servers.
type Quorum struct {
	Nodes []string // five
	Dead  string   // refuses connections; in the place of the last node
	Hung  string   // accepts connections, and does not answer; in the place of the last node
}

// QuorumServers is how many servers NewQuorum needs.
const QuorumServers = 7

// The log of go-redis would name the killed server again and again. It has no lock of its own, so it
// is switched off before the first client.
func init() { logging.Disable() }

// NewQuorum kills one of the servers, and stops another one for good.
func NewQuorum(servers *testservers.Quorum) Quorum {
	q, nodes := Quorum{Nodes: servers.Addrs()[:5]}, servers.Nodes()
	nodes[5].Kill()
	nodes[6].Pause()
	q.Dead, q.Hung = nodes[5].Addr(), nodes[6].Addr()
	return q
}

// addrs returns the nodes of a subject.
func (q Quorum) addrs(name string) string {
	nodes := slices.Clone(q.Nodes)
	switch name {
	case subject.OursOneDead:
		nodes[len(nodes)-1] = q.Dead
	case subject.OursOneHung:
		nodes[len(nodes)-1] = q.Hung
	}
	return strings.Join(nodes, ",")
}

// redlockSerial is serial on five nodes. Redsync does without a fencing token there.
func (b *Bench) redlockSerial(ctx context.Context) (*Outcome, error) {
	ours := subject.OursQuorum
	names := []string{
		ours, subject.OursOneDead, subject.OursOneHung, subject.RedsyncQuorum, subject.RedsyncFast,
		subject.OursFar, subject.RedsyncFar,
	}
	p50, _, err := b.serialTimes(ctx, "redlock_serial", b.Pace.RedlockSerial, names)
	if err != nil {
		return nil, err
	}
	return &Outcome{
		Title:  "5 nodes, one goroutine, a free key: acquire and release",
		Rounds: b.Pace.RedlockSerial.N,
		Rows:   rows(names, column{"p50_us", "p50 µs", p50}),
		Ratios: []Ratio{
			ratio("redlock_vs_redsync", subject.RedsyncQuorum, p50[ours], p50[subject.RedsyncQuorum]),
			ratio("redlock_far_vs_redsync", subject.RedsyncFar, p50[subject.OursFar], p50[subject.RedsyncFar]),
			ratio("redlock_one_dead_vs_all_up", "all nodes", p50[subject.OursOneDead], p50[ours]),
			ratio("redlock_one_hung_vs_all_up", "all nodes", p50[subject.OursOneHung], p50[ours]),
		},
	}, nil
}

// redlockCross is cross on five nodes, with 4 processes of 4 goroutines. It also counts how many
// later calls of other processes overtake an acquisition.
func (b *Bench) redlockCross(ctx context.Context) (*Outcome, error) {
	pace, names := b.Pace.RedlockCross, []string{subject.OursQuorum, subject.RedsyncQuorum}
	var rate, held, p50, longest, share, overtaken, most = figures{}, figures{}, figures{}, figures{}, figures{}, figures{}, figures{}
	for n := range pace.N {
		ideal, err := b.contend(ctx, subject.Ideal, crossHold, pace)
		if err != nil {
			return nil, err
		}
		for _, name := range b.round("redlock_cross", n, pace.N, names) {
			task := crowdTask{Subject: name, Addr: b.addr(name), Key: b.key("redlock"), Goroutines: 4, Hold: crossHold}
			sum, err := b.count(ctx, pace, task, task, task, task)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			b.addFaults(name, sum.faults)
			rate.add(name, sum.perSecond)
			held.add(name, sum.perSecond/ideal.perSecond)
			share.add(name, sum.minMaxShare)
			p50.add(name, millis(stats.Quantile(sum.waits, 0.5)))
			longest.add(name, millis(stats.Quantile(sum.waits, 1)))
			overtaken.add(name, mean(sum.overtaken))
			most.add(name, float64(slices.Max(append(sum.overtaken, 0))))
		}
	}
	return &Outcome{
		Title:  "5 nodes, 4 processes of 4 goroutines, one key, held for 1 ms",
		Rounds: pace.N,
		Rows: rows(names,
			column{"per_s", "acquisitions/s", rate},
			column{"held", "of the time held", held},
			column{"p50_wait_ms", "p50 wait ms", p50},
			column{"max_wait_ms", "max wait ms", longest},
			column{"min_max_share", "min/max share", share},
			column{"overtaken_mean", "overtaken, mean", overtaken},
			column{"overtaken_max", "overtaken, max", most},
		),
		Ratios: []Ratio{ratio("redlock_contended_vs_redsync", subject.RedsyncQuorum, rate[names[0]], rate[names[1]])},
	}, nil
}

func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(max(1, len(values)))
}

// overtakings returns for each acquisition how many calls of other processes came later and were
// granted sooner. A wait without an end counts, too.
func overtakings(results []crowdResult) (counts []int) {
	type wait struct {
		process         int
		called, granted clock.Time
	}
	var waits []wait
	for process, r := range results {
		for _, m := range r.Members {
			for i, granted := range m.Granted {
				waits = append(waits, wait{process, granted.Add(-m.Waits[i]), granted})
			}
			if m.Unfinished > 0 {
				waits = append(waits, wait{process, r.End.Add(-m.Unfinished), r.End})
			}
		}
	}
	slices.SortFunc(waits, func(a, b wait) int { return int(a.called - b.called) })
	for i, w := range waits {
		n := 0
		for _, later := range waits[i+1:] {
			if later.called >= w.granted {
				break
			}
			if later.process != w.process && later.granted < w.granted {
				n++
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// contenders are those of redlockVotes.
const contenders = 32

// redlockVotes counts the rounds in which no contender wins. In each round, 32 contenders try once
// to get the same free lock, at the same time. Each has connections of its own. Requests to far
// nodes come there in different orders.
func (b *Bench) redlockVotes(ctx context.Context) (*Outcome, error) {
	names := []string{subject.OursQuorum, subject.RedsyncQuorum, subject.OursFar, subject.RedsyncFar}
	without, took := figures{}, figures{}
	for _, name := range names {
		n, times, err := b.votes(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		without.add(name, n)
		took[name] = times
	}
	ours := without[subject.OursQuorum][0] + without[subject.OursFar][0]
	return &Outcome{
		Title:  "5 nodes, 32 contenders try once to get a free lock",
		Rounds: b.Pace.RedlockVotes.N,
		Rows:   rows(names, column{"without_winner", "rounds without a winner", without}, column{"round_ms", "longest try ms", took}),
		Ratios: []Ratio{{"redlock_rounds_without_winner", "", stats.SpreadOf([]float64{ours})}},
	}, nil
}

// votes returns the number of rounds without a winner, and the longest try of each round in ms.
func (b *Bench) votes(ctx context.Context, name string) (without float64, took []float64, err error) {
	var all []subject.Trier
	defer func() {
		for _, l := range all {
			_ = l.Close() // every figure is known by now
		}
	}()
	for range contenders {
		l, err := subject.Open(name, subject.Setup{Addr: b.addr(name), TTL: ttl})
		if err != nil {
			return 0, nil, err
		}
		all = append(all, l.(subject.Trier))
	}
	warmUp := b.key("warm-up")
	if _, _, err := vote(ctx, all, func(i int) string { return warmUp + "-" + strconv.Itoa(i) }); err != nil {
		return 0, nil, err
	}
	pace, key := b.Pace.RedlockVotes, b.key("votes")
	for n := range pace.N {
		if n%100 == 0 {
			b.round("redlock_votes", n, pace.N, []string{name})
		}
		winners, longest, err := vote(ctx, all, func(int) string { return key })
		if err == nil && winners > 1 {
			err = fmt.Errorf("%d contenders hold the lock", winners)
		}
		if err != nil {
			return 0, nil, err
		}
		if winners == 0 {
			without++
		}
		took = append(took, millis(longest))
	}
	return without, took, nil
}

// vote has all contenders try at once. The winner releases the lock after all tries.
func vote(ctx context.Context, all []subject.Trier, key func(int) string) (winners int, longest time.Duration, err error) {
	held, errs, times := make([]subject.Held, len(all)), make([]error, len(all)), make([]time.Duration, len(all))
	begin := make(chan struct{})
	var tries sync.WaitGroup
	for i, l := range all {
		tries.Go(func() {
			<-begin
			began := time.Now()
			held[i], errs[i] = l.TryAcquire(ctx, key(i))
			times[i] = time.Since(began)
		})
	}
	close(begin)
	tries.Wait()
	for i, h := range held {
		if errs[i] == nil && h != nil {
			winners++
			errs[i] = h.Release(ctx)
		}
	}
	return winners, slices.Max(times), errors.Join(errs...)
}
