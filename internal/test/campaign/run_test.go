package campaign

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

var (
	minutes = flag.Float64("minutes", 0, "last for so long, over all topologies; 0: about a minute")
	seed    = flag.Uint64("seed", 0, "repeat the choices of a run; 0: draw one")
	on      = flag.String("on", strings.Join(everywhere, ","), "`topologies`: "+strings.Join(everywhere, ", "))
	works   = flag.String("work", strings.Join(workloads, ","), "`workloads`: "+strings.Join(workloads, ", "))
	only    = flag.String("faults", "", "`names` of faults, with commas between them; chaos: strikes at turns and at servers; none: many processes compete for few locks")
	hits    = flag.String("hits", "", "`numbers` of the faults that strike, as a failed run prints them; empty: all")
	shrinks = flag.Duration("shrink", 5*time.Minute, "look for so long for the fewest faults with which a run of -minutes still fails")
	keep    = flag.String("keep", "", "`directory` for the histories of violations")
	server  = flag.String("server", "", "`arguments` of the Redis servers, as in '--appendonly yes'")
	verbose = flag.Bool("strikes", false, "print every strike")
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"worker": child.Role(work)})
	redis.SetLogger(quiet{})
	leakcheck.VerifyTestMain(m)
}

// quiet keeps the clients of the parent from writing of each fault between its tables.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// workloads are those that run side by side on each topology, and those that run alone.
var workloads = append(slices.Clone(mixed), "beluga", "soak")

// TestCampaign strikes at random, with one workload or topology after the other.
func TestCampaign(t *testing.T) {
	lasts, drawn := 66*time.Second, drawn() // with what starts and ends, 80 s
	if *minutes > 0 {
		lasts = time.Duration(*minutes * float64(time.Minute))
	}
	chosenWorks, topologies := chosen(t, "-work", *works, workloads), chosen(t, "-on", *on, everywhere)
	var side, alone []string
	for _, work := range chosenWorks {
		if slices.Contains(mixed, work) {
			side = append(side, work)
		} else if *only == "" && *hits == "" { // they have faults of their own
			alone = append(alone, work)
		}
	}
	if side == nil {
		topologies = nil
	}
	command := makes(*works, *on, lasts, drawn, *hits)
	t.Logf("seed %d: %s", drawn, command)
	shares := sharesOf(topologies, lasts) // without -minutes, those that run alone take seconds
	if *minutes > 0 {
		shares = sharesOf(slices.Concat(topologies, alone), lasts)
	}
	var all []*campaign
	for _, name := range topologies {
		t.Run(name, func(t *testing.T) {
			p := planFor(name, drawn, shares[name])
			p.works, p.server = side, strings.Fields(*server)
			p.choose(*only, *hits)
			c := newCampaign(t, p)
			all = append(all, c)
			c.run()
			c.tell()
			if err := c.enough(); err != nil {
				t.Error(err)
			}
			if *minutes > 0 && *shrinks > 0 && len(c.wrong) > 0 {
				t.Error(c.shrink(t, *shrinks))
			}
		})
	}
	for _, work := range alone {
		t.Run(work, func(t *testing.T) {
			map[string]func(*testing.T, time.Duration, uint64){"beluga": belugaWork, "soak": soakWork}[work](t, shares[work], drawn)
		})
	}
	if len(all) == 0 {
		return // no servers
	}
	fmt.Print("\n", summary(all, lasts, drawn, command), "\n") // the log of the test would indent it
}

// choose takes the faults of -faults, and the numbers of -hits.
func (p *plan) choose(faults, hits string) {
	switch faults {
	case "":
	case "none":
		*p = p.withoutFaults()
	case "chaos":
		p.faults = chaos
	default:
		p.faults = strings.Split(faults, ",")
	}
	if hits != "" {
		p.hits = strings.Split(hits, ",")
	}
}

// chosen are the names of a flag, each of which is one of some.
func chosen(t *testing.T, of, names string, some []string) []string {
	all := strings.Split(names, ",")
	for _, name := range all {
		if !slices.Contains(some, name) {
			t.Fatalf("%s names %q, but there are %s", of, name, strings.Join(some, ", "))
		}
	}
	return all
}

// makes is the command that repeats a run.
func makes(works, on string, lasts time.Duration, seed uint64, hits string) string {
	text := fmt.Sprintf("make faults WORK=%s ON=%s MINUTES=%.3g SEED=%d", works, on, lasts.Minutes(), seed)
	if hits != "" {
		text += " HITS=" + hits
	}
	if *only != "" {
		text += fmt.Sprintf(" FLAGS=%q", "-faults '"+*only+"'")
	}
	return text
}

// enough is an error if a run tests nothing.
func (c *campaign) enough() error {
	of := map[string]int{"lock": c.register.sections, "session": c.ledger.tally.turns, "draft": c.register.counts["drafts"], "election": c.register.counts["terms"]}
	for _, work := range c.plan.works {
		if of[work] == 0 && !c.plan.hammers {
			return fmt.Errorf("workload %s has done nothing", work)
		}
	}
	struck, _ := c.struck()
	if c.register.sections == 0 || c.plan.faults == nil && c.plan.hits == nil && struck == 0 {
		return errors.New("this tests nothing")
	}
	return nil
}

// drawn is the seed of a run.
func drawn() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64N(1e9)
}

// sharesOf are how long each topology has: the fewer faults it has, the less.
func sharesOf(names []string, lasts time.Duration) map[string]time.Duration {
	weights, sum, shares := map[string]int{
		"node": 10, "sentinel": 12, "cluster": 13, "redlock3": 12, "redlock5": 8, "postgres": 12, "soak": 10, "beluga": 6,
	}, 0, make(map[string]time.Duration)
	for _, name := range names {
		sum += weights[name]
	}
	for _, name := range names {
		shares[name] = lasts * time.Duration(weights[name]) / time.Duration(sum)
	}
	return shares
}

// tell fails the test with its findings, and reports the rest.
func (c *campaign) tell() {
	c.t.Log(c.report())
	if *verbose || len(c.wrong) > 0 {
		c.t.Log("strikes:\n" + strings.Join(c.log, "\n"))
	}
	if err := c.histories.doubt(); err != nil {
		c.t.Error(err)
	}
	if c.plan.hammers {
		c.t.Logf("the patient waited for %s at most", time.Duration(c.register.waited).Round(time.Millisecond))
		if c.plan.on == "node" {
			// Other keys of a worker that has ended expire within the TTL of its locks.
			if n := nothingLeft(c.t, c.service.Nodes()[0], c.plan.ttl+time.Second); n != hammeredKeys {
				c.t.Errorf("%d locks have a record, want %d", n, hammeredKeys)
			}
		}
	}
	for i, f := range c.wrong {
		if i == 30 {
			c.t.Errorf("and %d more", len(c.wrong)-i)
			break
		}
		c.t.Error(f)
	}
}

// A campaign against workers that do something wrong finds it. Some kinds are found while it goes
// on, and end it.
func TestCampaign_findsWhatIsBroken(t *testing.T) {
	var running sync.WaitGroup
	free := make(chan struct{}, 4) // they wait more than they work: more at once than the machine has processors
	for _, test := range []struct {
		broken string
		lasts  time.Duration
		faults string // none if empty
		kinds  []string
		until  []string
	}{
		{noFence, 8 * time.Second, "holder stopped", []string{"S2"}, nil},
		{longTTL, 11 * time.Second, holderKilled, []string{"L"}, []string{"L"}},
		{lateNotice, 6 * time.Second, "cut off", []string{"N"}, []string{"N"}},
		{blindTrust, 6 * time.Second, "", []string{"S1"}, []string{"S1"}},
		{noLock, 2 * time.Second, "", []string{"S1", "lost", "torn", "stale"}, nil},
		{falling, 6 * time.Second, "", []string{"fence"}, []string{"fence"}},
		{lostSave, 2 * time.Second, "", []string{"lost"}, nil},
		{doubledSave, 2 * time.Second, "", []string{"doubled"}, nil},
		{noClear, 3 * time.Second, "", []string{"O"}, nil},
		{noTurn, 2 * time.Second, "", []string{"stale"}, nil},
		{stepwise, 3 * time.Second, "", []string{"history"}, nil},
	} {
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			t.Run(test.broken, func(t *testing.T) {
				kinds := make(map[string]int)
				for try := range uint64(6) { // a fault may come at a bad moment, or the machine may stand
					for kind, n := range findingsOf(t, test.broken, test.faults, test.lasts, test.until, try) {
						kinds[kind] += n
					}
					if !slices.ContainsFunc(test.kinds, func(kind string) bool { return kinds[kind] == 0 }) {
						return
					}
				}
				t.Errorf("the findings are %s, want some of each of %v", list(kinds), test.kinds)
			})
		})
	}
	running.Wait()
}

// findingsOf are the findings of a run with broken workers, by kind.
func findingsOf(t *testing.T, broken, fault string, lasts time.Duration, until []string, seed uint64) map[string]int {
	p := planFor("node", seed, lasts)
	p.broken, p.faults, p.strikes, p.until, p.workers = broken, []string{fault}, 5, until, 3
	if broken == longTTL {
		p.strikes = 1
	}
	c := newCampaign(t, p)
	c.run()
	kinds := make(map[string]int)
	for _, f := range c.wrong {
		kinds[f.kind]++
	}
	t.Log(list(kinds))
	return kinds
}
