package election_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/history"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

var (
	minutes = flag.Float64("minutes", 0, "last for so long, one backend after the other; 0: two faults of each kind on each backend")
	seed    = flag.Uint64("seed", 0, "repeat the choices of a run; 0: draw one")
)

const (
	processes = 3
	realTTL   = time.Second
	patience  = 30 * time.Second
)

// backends are the lock services of TestFaults_ownServers.
var backends = map[string]func(t *testing.T) (lock, store string, addrs []string){
	"redis": func(t *testing.T) (string, string, []string) {
		node := servers.StartRedis(t)
		return node.URL(), node.URL(), []string{node.Addr()}
	},
	"redlock": func(t *testing.T) (string, string, []string) {
		q := servers.StartQuorum(t, 3)
		return q.URL() + "?restart_delay=-1s", servers.StartRedis(t).URL(), q.Addrs()
	},
	"postgres": func(t *testing.T) (string, string, []string) {
		server := servers.StartPostgres(t)
		url := server.NewDatabase(t).URL()
		db, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := pglock.Migrate(t.Context(), db, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `CREATE TABLE acts AS SELECT 0::bigint AS fence, 0::bigint AS n`); err != nil {
			t.Fatal(err)
		}
		return url, url, []string{server.Addr()}
	},
}

// At most one process leads at any time, while leaders resign, are killed, paused for longer than
// the TTL and cut off from the lock service. A store that compares tokens refuses each act of a
// leader after the next one has acted.
//
//	go test -v -timeout 30m -run TestFaults ./distlock/election -args -minutes 10
func TestFaults_ownServers(t *testing.T) {
	drawn := *seed
	if drawn == 0 {
		drawn = rand.Uint64N(1e9)
	}
	var rows []string
	for _, backend := range []string{"redis", "postgres", "redlock"} {
		t.Run(backend, func(t *testing.T) {
			g := newGroup(t, backend)
			defer g.judge()
			rng := rand.New(rand.NewPCG(drawn, 0))
			began, until := time.Now(), time.Now().Add(time.Duration(*minutes*float64(time.Minute))/3)
			for n := 0; n < 2 || time.Now().Before(until); n++ {
				strikes := []func(){g.resign, g.kill, g.pause, g.cutOff}
				rng.Shuffle(len(strikes), func(i, j int) { strikes[i], strikes[j] = strikes[j], strikes[i] })
				for _, strike := range strikes {
					if strike(); t.Failed() {
						return
					}
					time.Sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
				}
			}
			rows = append(rows, g.row(backend, time.Since(began)))
		})
	}
	t.Logf("seed %d\n| backend | time | faults | terms | refused acts | resign | kill | pause | cut off | violations |\n|%s\n%s",
		drawn, strings.Repeat("---|", 10), strings.Join(rows, "\n"))
}

// group is the processes of one backend, and their witness.
type group struct {
	*witness
	t         *testing.T
	config    config
	networks  [processes]*faultnet.Net
	locks     [processes]string // URLs
	processes [processes]*child.Child
	watch     *leakcheck.Watch
	took      map[string][]time.Duration // from the fault until the next leader leads
	refusals  int
}

func newGroup(t *testing.T, backend string) *group {
	g := &group{t: t, witness: &witness{terms: map[int64]*record{}}, watch: leakcheck.NewWatch(), took: map[string][]time.Duration{}}
	t.Cleanup(g.watch.Stop)
	lock, store, addrs := backends[backend](t)
	g.config = config{Store: store, TTL: realTTL}
	for n := range processes {
		g.networks[n], g.locks[n] = faultnet.NewNet(t), lock
		for _, addr := range addrs {
			g.locks[n] = strings.ReplaceAll(g.locks[n], addr, g.networks[n].Only(addr).Addr())
		}
		g.start(n)
	}
	return g
}

// start starts process n, and lets the witness hear what it says.
func (g *group) start(n int) {
	c := g.config
	c.Lock, c.Holder = g.locks[n], fmt.Sprint("process-", n)
	child, err := child.StartRole(g.t.Context(), "instance", c, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.processes[n] = child
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for {
			var s said
			if child.Receive(&s) != nil {
				return
			}
			g.hear(n, s)
		}
	}()
	g.t.Cleanup(func() {
		child.Kill()
		<-child.Done()
		<-heard
		_ = child.Close()
	})
}

// judge ends the processes and fails the test with what they did wrong.
func (g *group) judge() {
	for _, c := range g.processes {
		if err := c.Close(); err != nil {
			g.t.Errorf("%v\n%s", err, c.Stderr())
		}
	}
	for _, v := range g.violations() {
		g.t.Error(v)
	}
}

// leader waits for a leader other than the older one.
func (g *group) leader(older int64) (t record) {
	g.t.Helper()
	servers.Await(g.t, patience, "a process leads", func() (ok bool) {
		t, ok = g.newest()
		return ok && t.token != older
	})
	return t
}

// leads waits for the next leader after a fault, and compares the time with the limit.
func (g *group) leads(fault string, older record, since int64, limit time.Duration) {
	g.t.Helper()
	start := time.Now()
	next := g.leader(older.token)
	took := time.Duration(next.began - since)
	g.took[fault] = append(g.took[fault], took)
	if took > limit+g.watch.Stalled(start.Add(-time.Second), time.Now()) {
		g.t.Errorf("%s: the next leader began after %s, promised %s", fault, took, limit)
	}
}

func (g *group) resign() {
	old := g.leader(0)
	if err := g.processes[old.process].Send("resign"); err != nil {
		g.t.Fatal(err)
	}
	g.leaves(old)
	g.leads("resign", old, g.of(old.token).left, time.Second)
}

func (g *group) kill() {
	old := g.leader(0)
	at := history.Now()
	g.processes[old.process].Kill()
	g.leads("kill", old, at, realTTL+time.Second)
	<-g.processes[old.process].Done()
	g.start(old.process)
}

// pause lets the leader go on when the next one has acted.
func (g *group) pause() {
	old := g.leader(0)
	at := history.Now()
	if err := g.processes[old.process].Pause(); err != nil {
		g.t.Fatal(err)
	}
	g.leads("pause", old, at, realTTL+time.Second)
	if err := g.processes[old.process].Continue(); err != nil {
		g.t.Fatal(err)
	}
	g.isRefused(old)
}

// cutOff cuts the leader off from the lock service, but not from the store.
func (g *group) cutOff() {
	old := g.leader(0)
	at := history.Now()
	g.networks[old.process].Cut()
	g.leads("cut off", old, at, realTTL+time.Second)
	g.isRefused(old)
	g.networks[old.process].Heal()
}

// leaves waits until lead has returned.
func (g *group) leaves(old record) {
	g.t.Helper()
	servers.Await(g.t, patience, "lead returns", func() bool { return g.of(old.token).left != 0 })
}

func (g *group) isRefused(old record) {
	g.t.Helper()
	g.leaves(old)
	refused := g.of(old.token).refused
	if refused < insists {
		g.t.Errorf("the store refused %d acts of the older leader, which acted at least %d times too late", refused, insists)
	}
	g.refusals += refused
}

// row is the row of a backend in docs/reports/election.md.
func (g *group) row(backend string, took time.Duration) string {
	faults, times := 0, ""
	for _, fault := range []string{"resign", "kill", "pause", "cut off"} {
		all := slices.Sorted(slices.Values(g.took[fault]))
		if len(all) == 0 {
			return ""
		}
		faults += len(all)
		times += fmt.Sprintf(" %d: %s, %s |", len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d |%s %d |", backend, took.Round(time.Second), faults, g.count(), g.refusals, times,
		len(g.violations()))
}
