// Package scenario measures the subjects in several situations. In each of them the subjects take turns
// in rounds, in another order every time, so that they all meet the same machine. A ratio compares
// figures of the same round. The result is its median over the rounds.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
	"github.com/belugalock/belugalock/internal/childproc"
)

// ttl is that of all locks: none runs out while it is measured.
const ttl = 30 * time.Second

// ServerArgs are what the redis-server has to be started with.
var ServerArgs = []string{"--enable-debug-command", "local"}

// Bench is where and how long the scenarios are run.
type Bench struct {
	Addr string // of the redis-server
	// Postgres is the URL of a database with the tables of package subject. It needs fsync.
	Postgres string
	Quorum   Quorum
	Pace     Pace
	// Progress gets a line for each step.
	Progress func(text string)

	keys      int
	longTurns int // of the long sessions of the scenarios store and history; 0: 100,000
	leases    int // of the scenarios idle, pg_waiters and pg_renew; 0: 1,000
	watchdog  *time.Timer
	faults    map[string]Faults // by subject
}

type scenario struct {
	name string
	run  func(*Bench, context.Context) (*Outcome, error)
}

var all = []scenario{
	{"serial", (*Bench).serial},
	{"tracing", (*Bench).tracing},
	{"parallel", (*Bench).parallel},
	{"local", (*Bench).local},
	{"cross", (*Bench).cross},
	{"handoff", (*Bench).handoff},
	{"idle", (*Bench).idle},
	{"store", (*Bench).store},
	{"history", (*Bench).history},
	{"redlock_serial", (*Bench).redlockSerial},
	{"redlock_cross", (*Bench).redlockCross},
	{"redlock_votes", (*Bench).redlockVotes},
	{"pg_serial", (*Bench).pgSerial},
	{"pg_cross", (*Bench).pgCross},
	{"pg_waiters", (*Bench).pgWaiters},
	{"pg_save", (*Bench).pgSave},
	{"pg_notify", (*Bench).pgNotify},
	{"pg_renew", (*Bench).pgRenew},
}

// NeedsPostgres reports whether a scenario needs Bench.Postgres.
func NeedsPostgres(name string) bool { return strings.HasPrefix(name, "pg_") }

// NeedsQuorum reports whether a scenario needs Bench.Quorum.
func NeedsQuorum(name string) bool { return strings.HasPrefix(name, "redlock_") }

// PostgresSettings are what PostgreSQL has to be started with.
var PostgresSettings = []string{"fsync=on"}

// Names returns the names of the scenarios, in their order.
func Names() (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

// Select reads a list of names with commas between. An empty list means all of them.
func Select(list string) ([]string, error) {
	if list == "" {
		return Names(), nil
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("no scenario is called %q, there are: %s", name, strings.Join(Names(), ", "))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Roles returns what other processes do for the scenarios, for childproc.Serve.
func Roles() map[string]childproc.Work {
	return map[string]childproc.Work{crowdRole: childproc.Role(crowd), relayRole: childproc.Role(relay)}
}

// startAll starts n processes in a role, or none.
func startAll(ctx context.Context, n int, role string, task any) (members []*childproc.Child, err error) {
	for range n {
		m, err := childproc.StartRole(ctx, role, task, os.Stderr)
		if err != nil {
			return nil, errors.Join(err, closeAll(members))
		}
		members = append(members, m)
	}
	return members, nil
}

func closeAll(members []*childproc.Child) (err error) {
	for _, m := range members {
		m.Stop() // all can end at once
	}
	for _, m := range members {
		err = errors.Join(err, m.Close())
	}
	return err
}

// longestRound is how long no round takes. A subject that never returns ends its scenario, not the
// program.
const longestRound = time.Minute

// Run runs a scenario.
func (b *Bench) Run(ctx context.Context, name string) (*Outcome, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, fmt.Errorf("no scenario is called %q", name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.watchdog = time.AfterFunc(longestRound, func() {
		cancel(fmt.Errorf("%s: a goroutine still waits after %s", name, longestRound))
	})
	defer b.watchdog.Stop()
	b.faults = map[string]Faults{}
	outcome, err := all[i].run(b, ctx)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause // what failed then, failed because of that
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	outcome.Name, outcome.Notes = name, b.notes()
	return outcome, nil
}

// key returns a new key, so that the leftovers of a stopped subject do not disturb the next one.
func (b *Bench) key(prefix string) string {
	b.keys++
	return fmt.Sprintf("%s-%d", prefix, b.keys)
}

// addr returns the server of a subject.
func (b *Bench) addr(name string) string {
	switch {
	case subject.OnPostgres(name):
		return b.Postgres
	case subject.OnQuorum(name):
		return b.Quorum.addrs(name)
	}
	return b.Addr
}

// round announces a round and returns the subjects in its order.
func (b *Bench) round(scenario string, n, of int, subjects []string) []string {
	b.watchdog.Reset(longestRound)
	b.Progress(fmt.Sprintf("%-8s round %d of %d", scenario, n+1, of))
	return rotated(subjects, n)
}

// rotated returns the list with its first n elements at its end.
func rotated(list []string, n int) []string {
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// openAll opens subjects, to be used in turns, and returns what closes them.
func openAll[T io.Closer](b *Bench, names []string, open func(string, subject.Setup) (T, error),
) (opened map[string]T, closeAll func(), err error) {
	opened = map[string]T{}
	closeAll = func() {
		for _, each := range opened {
			_ = each.Close() // every figure is known by now
		}
	}
	for _, name := range names {
		one, err := open(name, subject.Setup{Addr: b.addr(name), TTL: ttl})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		opened[name] = one
	}
	return opened, closeAll, nil
}
