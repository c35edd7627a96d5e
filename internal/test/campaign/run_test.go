package campaign

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
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
var workloads = append(slices.Clone(mixed), "beluga", "adk", "soak")

// TestCampaign strikes at random, with one workload or topology after the other.
func TestCampaign(t *testing.T) {
	lasts, drawn := 66*time.Second, drawn() // in all, some topologies at once
	if *minutes > 0 {
		lasts = time.Duration(*minutes * float64(time.Minute))
	}
	chosenWorks, topologies := chosen(t, "-work", *works, workloads), chosen(t, "-on", *on, everywhere)
	var side, alone []string
	var apart time.Duration // of those that run alone: without -minutes, they take seconds
	runs := map[string]func(*testing.T){"soak": func(t *testing.T) { soakWork(t, apart, drawn) }}
	for _, work := range chosenWorks {
		if slices.Contains(mixed, work) {
			side = append(side, work)
		} else if *only != "" || *hits != "" {
			continue
		} else if play := map[string]func(*testing.T, string, time.Duration, uint64){"beluga": belugaWork, "adk": adkWork}[work]; play != nil {
			// They have faults of their own, as the soak has.
			for _, on := range instancesOn(topologies, drawn) {
				alone = append(alone, work+" on "+on)
				runs[work+" on "+on] = func(t *testing.T) { play(t, on, apart, drawn) }
			}
		} else {
			alone = append(alone, work)
		}
	}
	if side == nil {
		topologies = nil
	}
	command := makes(*works, *on, lasts, drawn, *hits)
	t.Logf("seed %d: %s", drawn, command)
	share := lasts / time.Duration(max(1, len(topologies)))
	if *minutes > 0 {
		share = lasts / time.Duration(len(topologies)+len(alone))
		apart = share
	}
	for _, name := range topologies {
		runs[name] = func(t *testing.T) {
			p := planFor(name, drawn, share)
			p.works, p.server = side, strings.Fields(*server)
			p.choose(*only, *hits)
			c := newCampaign(t, p)
			c.run()
			c.tell()
			if err := c.enough(); err != nil {
				t.Error(err)
			}
			if *minutes > 0 && *shrinks > 0 && len(c.wrong) > 0 {
				t.Error(c.shrink(t, *shrinks))
			}
		}
	}
	atOnce := 3
	if *minutes > 0 {
		atOnce = 1
	}
	sideBySide(t, atOnce, slices.Concat(topologies, alone), func(t *testing.T, name string) { runs[name](t) })
}

// sideBySide runs tests that wait as much as they work: some of them at once.
func sideBySide(t *testing.T, atOnce int, names []string, run func(*testing.T, string)) {
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, name := range names {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			t.Run(name, func(t *testing.T) { run(t, name) })
		})
	}
	running.Wait()
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

func chosen(t *testing.T, of, names string, some []string) []string {
	all := strings.Split(names, ",")
	for _, name := range all {
		if !slices.Contains(some, name) {
			t.Fatalf("%s names %q, but there are %s", of, name, strings.Join(some, ", "))
		}
	}
	return all
}

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

func (c *campaign) enough() error {
	of := map[string]string{"lock": sections, "session": "acknowledged: turn", "draft": "drafts", "election": "terms", "stop": "stop: answers, answered",
		"inbox": "inbox: submits, answered"}
	for _, work := range c.plan.works {
		if (work == "stop" || work == "inbox") && c.sessions != nil { // a quorum has none
			continue
		}
		if c.counted(of[work]) == 0 && !c.plan.hammers {
			return fmt.Errorf("workload %s has done nothing", work)
		}
	}
	struck, _ := c.struck()
	if c.counted(sections) == 0 || c.plan.faults == nil && c.plan.hits == nil && struck == 0 {
		return errors.New("this tests nothing")
	}
	return nil
}

func drawn() uint64 {
	if *seed != 0 {
		return *seed
	}
	return rand.Uint64N(1e9)
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
	if c.plan.hammers && c.plan.on == "node" {
		// Other keys of a worker that has ended expire within the TTL of its locks.
		if n := nothingLeft(c.t, c.service.Nodes()[0], c.plan.ttl+time.Second); n != hammeredKeys {
			c.t.Errorf("%d locks have a record, want %d", n, hammeredKeys)
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

// A campaign against workers that do something wrong finds it.
func TestCampaign_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	type broken struct {
		lasts  time.Duration
		faults string // none if empty
		kinds  []string
		until  []string
		again  bool // with the faults that were felt
	}
	all := map[string]broken{
		noFence:     {8 * time.Second, "holder stopped", []string{"S2"}, nil, false},
		longTTL:     {11 * time.Second, holderKilled, []string{"L"}, []string{"L"}, false},
		lateNotice:  {10 * time.Second, "cut off", []string{"N"}, []string{"N"}, false},
		blindTrust:  {6 * time.Second, "", []string{"S1"}, []string{"S1"}, false},
		noLock:      {2 * time.Second, "", []string{"S1", "lost", "torn", "stale"}, nil, false},
		falling:     {6 * time.Second, "", []string{"fence"}, []string{"fence"}, true},
		lostSave:    {2 * time.Second, "", []string{"lost"}, nil, false},
		doubledSave: {2 * time.Second, "", []string{"doubled"}, nil, false},
		noClear:     {3 * time.Second, "", []string{"O"}, nil, false},
		noTurn:      {2 * time.Second, "", []string{"stale"}, nil, false},
		stepwise:    {3 * time.Second, "", []string{"history"}, nil, false},
		idleStop:    {2 * time.Second, "", []string{"stop"}, nil, false},
		lostPut:     {2 * time.Second, "", []string{"inbox"}, nil, false},
		firstKnown:  {2 * time.Second, "", []string{"inbox"}, nil, false},
	}
	sideBySide(t, 4, slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[b].lasts, all[a].lasts) }), func(t *testing.T, name string) {
		test, kinds := all[name], make(map[string]int)
		for try := range uint64(10) { // a fault may come at a bad moment, or the machine may stand
			p := planFor("node", try, test.lasts)
			p.broken, p.faults, p.strikes, p.until, p.workers = name, []string{test.faults}, 5, test.until, 3
			p.works, p.goroutines = mixed[:len(mixed)-2], 6
			switch name {
			case longTTL:
				p.strikes = 1
			case lateNotice: // a cut is felt by few
				p.strikes = 12
			case idleStop: // what the last workloads are to find
				p.works = []string{"stop"}
			case lostPut, firstKnown:
				p.works = []string{"inbox"}
			}
			c := newCampaign(t, p)
			c.run()
			for _, f := range c.wrong {
				kinds[f.kind]++
			}
			found := !slices.ContainsFunc(test.kinds, func(kind string) bool { return kinds[kind] == 0 })
			if t.Log(list(kinds)); found && (!test.again || len(c.wrong) > 0 && c.trial(t, c.suspects(c.wrong[0]))) {
				return
			}
		}
		t.Errorf("the findings are %s, want some of each of %v, and again with their faults: %t", list(kinds), test.kinds, test.again)
	})
}

type stat struct {
	times     int             // that it had an effect
	missed    int             // that it came to nothing
	apart     map[string]int  // what it may cause, and has, by kind
	recovered []time.Duration // until another worker came
	disturbed []time.Duration // the same, during another fault, or late because the machine stood
}

// stat needs c.mu.
func (c *campaign) stat(f *fault) *stat {
	s := c.stats[f]
	if s == nil {
		s = &stat{apart: make(map[string]int)}
		c.stats[f] = s
	}
	return s
}

func (c *campaign) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	struck, missed := c.struck()
	text := fmt.Sprintf("%s, %s, seed %d: %d faults, and %d that came to nothing; %d violations; the machine let the parent wait for %s",
		c.plan.on, c.took.Round(100*time.Millisecond), c.plan.seed, struck, missed, len(c.wrong),
		c.watch.Stalled(time.Unix(0, c.start), time.Now()).Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		text += fmt.Sprintf("\n%8d %s", c.counts[what], what)
	}
	for _, f := range append(slices.Clone(allFaults), replaced, resigned) {
		if s := c.stats[f]; s != nil {
			text += fmt.Sprintf("\n%8d times %s, %d came to nothing; what it may cause, and has: %s; until others worked: %s; during other faults, or while the machine stood: %s",
				s.times, f.name, s.missed, list(s.apart), spread(s.recovered), spread(s.disturbed))
		}
	}
	return text
}

// struck returns the number of faults with an effect, and of those without. It needs c.mu.
func (c *campaign) struck() (n, missed int) {
	for _, s := range c.stats {
		n += s.times
		missed += s.missed
	}
	return n, missed
}

// list says how many of each there are.
func list[K cmp.Ordered](counts map[K]int) string {
	sum, parts := 0, []string{}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		sum += counts[k]
		parts = append(parts, fmt.Sprintf("%d %v", counts[k], k))
	}
	if sum == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%s, %s (%d)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), len(all))
}
