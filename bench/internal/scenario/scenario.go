// Package scenario measures the subjects in several situations. In each of them the subjects take turns
// in rounds, in another order every time, so that they all meet the same machine. A ratio compares
// figures of the same round. The result is its median over the rounds.
package scenario

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/test/child"
)

// Bench is where and how long the scenarios are run.
type Bench struct {
	Addr string // of the redis-server
	// Postgres is the URL of a database with the tables of package subject. It needs fsync.
	Postgres string
	// Quorum are the addresses of seven independent servers. The last two are for one node in a subject
	// each: one refuses connections, the other accepts them and does not answer.
	Quorum []string
	Rounds *Rounds // instead of those of each scenario; nil: those
	// Progress gets a line for each step.
	Progress func(text string)

	name string // of the scenario
	pace Rounds
	keys int
}

// Rounds are the rounds of one scenario. What the times mean is said there.
type Rounds struct {
	N      int
	Window time.Duration // how long this library is measured in a round
	Settle time.Duration // how long before that, in which nothing counts
}

// scenario is a situation, and the figures of this library in it that count.
type scenario struct {
	name, title string
	rounds      Rounds
	run         func(context.Context, *Bench) (*Outcome, error)
	ratios      []Ratio
}

const ms = time.Millisecond

var all = []scenario{
	{"serial", "one goroutine, a free key: acquire and release",
		Rounds{N: 8, Window: 800 * ms}, serial(subject.Free()...), []Ratio{
			atMost("serial_vs_raw", 1.5, "p50_us", subject.Ours, subject.Raw),
			atMost("serial_vs_redislock", 1.3, "p50_us", subject.Ours, subject.Bsm),
			atMost("serial_redis_vs_raw", 4.3, "redis_us", subject.Ours, subject.Raw),
		}},
	{"parallel", "64 goroutines, each with its own key",
		Rounds{N: 6, Window: 200 * ms, Settle: 50 * ms}, throughput(64, false, subject.Free()...), []Ratio{
			atLeast("parallel_vs_best_peer", 0.9, "per_s", subject.Ours, bestPeer),
			atMost("parallel_redis_vs_raw", 4.3, "redis_us", subject.Ours, subject.Raw),
		}},
	{"local", "one process, 32 goroutines, one key, released at once",
		Rounds{N: 4, Window: 300 * ms, Settle: 100 * ms}, throughput(32, true, subject.Contended()...), []Ratio{
			atLeast("local_vs_best_peer", 25, "per_s", subject.Ours, bestPeer),
		}},
	{"cross", "4 processes of 8 goroutines, one key, held for 1 ms",
		Rounds{N: 3, Window: 1000 * ms, Settle: 250 * ms}, contest(8, 1*ms, subject.Contended()...), []Ratio{
			atLeast("cross_vs_ideal", 0.93, "per_s", subject.Ours, subject.Ideal),
			atMost("cross_p99_wait_vs_fair", 2, "p99_wait_ms", subject.Ours, subject.Ideal),
		}},
	{"handoff", "two Lockers, one key: from the release of one to the grant of the other",
		Rounds{N: 3, Window: 1200 * ms}, handoff, []Ratio{
			atMost("handoff_vs_rtt", 3, "p50_us", subject.Ours, ping),
		}},
	{"store", "a Save of 0.5 KB, a Load of 1,000 turns", Rounds{N: 5, Window: 500 * ms}, store, []Ratio{
		atMost("save_vs_xadd", 2.8, "save_us", subject.Ours, subject.Stream),
		atMost("turn_save_vs_xadd", 1.15, "turn_save_us", subject.Ours, subject.Stream),
		atMost("turn_id_save_vs_xadd", 2.2, "turn_id_save_us", subject.Ours, subject.Stream),
		atMost("load_1000_vs_lrange", 1.35, "load_1000_us", subject.Ours, subject.List),
	}},
	{"redlock_serial", "5 nodes, one goroutine, a free key: acquire and release",
		Rounds{N: 6, Window: 1200 * ms},
		serial(subject.OursQuorum, subject.OursOneDead, subject.OursOneHung, subject.Redsync), []Ratio{
			atMost("redlock_vs_redsync", 1.1, "p50_us", subject.OursQuorum, subject.Redsync),
			atMost("redlock_one_dead_vs_all_up", 1.1, "p50_us", subject.OursOneDead, subject.OursQuorum),
			atMost("redlock_one_hung_vs_all_up", 1.2, "p50_us", subject.OursOneHung, subject.OursQuorum),
		}},
	{"redlock_cross", "5 nodes, 4 processes of 4 goroutines, one key, held for 1 ms",
		Rounds{N: 3, Window: 1000 * ms, Settle: 300 * ms}, contest(4, 1*ms, subject.OursQuorum, subject.Redsync), []Ratio{
			atLeast("redlock_contended_vs_redsync", 2, "per_s", subject.OursQuorum, subject.Redsync),
		}},
	{"pg_serial", "PostgreSQL, one goroutine, a free key: acquire and release",
		Rounds{N: 6, Window: 1000 * ms}, serial(subject.OursPostgres, subject.Allisson, subject.Updates), []Ratio{
			atMost("pg_serial_vs_raw", 1.25, "p50_us", subject.OursPostgres, subject.Updates),
		}},
	{"pg_cross", "PostgreSQL, 4 processes of 8 goroutines, one key, held for 5 ms",
		Rounds{N: 3, Window: 1000 * ms, Settle: 300 * ms}, contest(8, 5*ms, subject.OursPostgres, subject.Allisson), []Ratio{
			atLeast("pg_cross_vs_allisson", 0.85, "per_s", subject.OursPostgres, subject.Allisson),
		}},
	{"pg_save", "PostgreSQL, a Save of 4 KB in a turn", Rounds{N: 6, Window: 800 * ms}, pgSave, []Ratio{
		atMost("pg_save_vs_insert", 1.3, "save_4k_us", subject.OursPostgres, subject.Insert),
	}},
}

// NeedsPostgres reports whether a scenario needs Bench.Postgres.
func NeedsPostgres(name string) bool { return strings.HasPrefix(name, "pg_") }

// NeedsQuorum reports whether a scenario needs Bench.Quorum.
func NeedsQuorum(name string) bool { return strings.HasPrefix(name, "redlock_") }

// Names returns the names of the scenarios, in their order.
func Names() (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// Roles returns what other processes do for the scenarios, for child.Serve.
func Roles() map[string]child.Work {
	return map[string]child.Work{crowdRole: child.Role(crowd)}
}

// longest is how long no scenario takes. A subject that never returns ends its scenario, not the program.
const longest = 5 * time.Minute

// Run runs a scenario.
func (b *Bench) Run(ctx context.Context, name string) (*Outcome, error) {
	s := all[slices.Index(Names(), name)]
	b.name, b.pace = name, s.rounds
	if b.Rounds != nil {
		b.pace = *b.Rounds
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(longest, func() { cancel(fmt.Errorf("%s: a goroutine still waits after %s", name, longest)) })
	defer late.Stop()
	outcome, err := s.run(ctx, b)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause // what failed then, failed because of that
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	outcome.Name, outcome.Title, outcome.Rounds = name, s.title, b.pace.N
	for _, r := range s.ratios {
		outcome.Ratios = append(outcome.Ratios, r.of(outcome.Columns))
	}
	return outcome, nil
}

// key returns a new key, so that the leftovers of a stopped subject do not disturb the next one.
func (b *Bench) key() string {
	b.keys++
	return fmt.Sprintf("%s-%d", b.name, b.keys)
}

// addr returns the server of a subject.
func (b *Bench) addr(name string) string {
	switch {
	case NeedsPostgres(b.name):
		return b.Postgres
	case NeedsQuorum(b.name):
		last := map[string]int{subject.OursOneDead: 5, subject.OursOneHung: 6}[name]
		return strings.Join(append(slices.Clone(b.Quorum[:4]), b.Quorum[max(4, last)]), ",")
	}
	return b.Addr
}

// round announces a round and returns the subjects in its order.
func (b *Bench) round(n int, subjects []string) []string {
	b.Progress(fmt.Sprintf("%-8s round %d of %d", b.name, n+1, b.pace.N))
	return rotated(subjects, n)
}

// rotated returns the list with its first n elements at its end.
func rotated(list []string, n int) []string {
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// openAll opens subjects, to be used in turns. Close the setup also after an error.
func openAll[T any](b *Bench, open map[string]subject.Opener[T], names ...string,
) (opened map[string]T, setup *subject.Setup, err error) {
	opened, setup = map[string]T{}, &subject.Setup{}
	for _, name := range names {
		if opened[name], err = open[name](setup, b.addr(name)); err != nil {
			return nil, setup, fmt.Errorf("open %s: %w", name, err)
		}
	}
	return opened, setup, nil
}

// release gives a lock back. An error does not end the measurement: on a machine that stalls, some
// libraries cannot tell the outcome of a release.
func release(ctx context.Context, held subject.Held) {
	if err := held.Release(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench: a release returned an error:", err)
	}
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
