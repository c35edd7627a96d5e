package chaos

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/belugalock/belugalock/internal/integrity"
	"github.com/belugalock/belugalock/internal/leakcheck"
)

var (
	on        = flag.String("on", "", "run on `node`, sentinel or cluster; none: a short run on a node")
	turns     = flag.Int("turns", 20000, "end when so many turns are answered")
	instances = flag.Int("instances", 8, "so many processes")
	talks     = flag.Int("sessions", 50, "so many sessions with turns; a fifth as many with notes")
	struck    = flag.Int("strikes", 100, "so many kills and pauses")
	failovers = flag.Int("failovers", -1, "so many masters die; default: 4 with sentinel and cluster, none on a node, which then comes back with what it has on disk")
	cut       = flag.Duration("cut", 0, "for so long, a master has no replicas before it dies")
	asMaster  = flag.Bool("as-master", false, "a dead master comes back as the master that it was, and empty, until it is told; with sentinel")
	server    = flag.String("server", "", "`arguments` of the Redis servers, as in '--appendonly yes'")
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := serve(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "instance:", err)
			os.Exit(1)
		}
		return
	}
	leakcheck.VerifyTestMain(m)
}

// short is what the ordinary tests do.
var short = plan{
	on: "node", instances: 4, sessions: 10, turns: 600, strikes: 12, ttl: 500 * time.Millisecond, limit: 2 * time.Minute,
}

func TestChaos(t *testing.T) {
	p := short
	if *on != "" {
		p = plan{
			on: *on, instances: *instances, sessions: *talks, turns: *turns, strikes: *struck, failovers: *failovers,
			ttl: time.Second, cut: *cut, asMaster: *asMaster, limit: 15 * time.Minute, server: strings.Fields(*server),
		}
		if topologies[p.on] == nil {
			t.Fatalf("-on is %q, but must be node, sentinel or cluster", p.on)
		}
		if p.failovers < 0 {
			p.failovers = map[string]int{"sentinel": 4, "cluster": 4}[p.on]
		}
	}
	c := newCampaign(t, p)
	start := time.Now()
	c.run()
	took := time.Since(start)
	c.end()
	v := c.judge()
	t.Log(c.summary(v, took))
	for i, f := range c.findings {
		if i == 50 {
			t.Errorf("and %d more", len(c.findings)-i)
			break
		}
		t.Error(f.text)
	}
	if sum(c.tally.kills)+sum(c.tally.pauses) < p.strikes || v.past.refused == 0 || v.notes.clears == 0 {
		t.Error("this tests nothing")
	}
}

// A campaign against a service that does something wrong finds it.
func TestChaos_findsWhatIsBroken(t *testing.T) {
	for broken, kinds := range map[string][]integrity.Kind{
		noLock:     {integrity.Lost, integrity.Torn, integrity.Stale},
		noTurn:     {integrity.Stale},
		noOrder:    {integrity.OutOfOrder},
		noFence:    {letIn},
		noIdentity: {integrity.Doubled},
	} {
		t.Run(broken, func(t *testing.T) {
			p := short
			p.broken, p.turns, p.strikes = broken, 300, 0
			if broken == noFence {
				p.strikes = 8
			}
			c := newCampaign(t, p)
			c.run()
			c.end()
			c.judge()
			counts := c.counts()
			t.Log(counts)
			for _, kind := range kinds {
				if counts[kind] == 0 {
					t.Errorf("nothing is %s", kind)
				}
			}
		})
	}
}

func (c *campaign) counts() map[integrity.Kind]int {
	counts := make(map[integrity.Kind]int)
	for _, f := range c.findings {
		counts[f.kind]++
	}
	return counts
}

// summary is a table.
func (c *campaign) summary(v *verdict, took time.Duration) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "\n%s\t%s", name, fmt.Sprintf(format, args...)) }
	p, n := c.plan, &c.tally
	row("on", "%s %s", p.on, strings.Join(p.server, " "))
	row("answered", "%d turns of %d sessions by %d instances in %s, %.0f a second", n.answered, p.sessions, p.instances, took.Round(100*time.Millisecond),
		float64(n.answered)/took.Seconds())
	row("given up, without a turn ID", "%d turns", n.givenUp)
	row("notes", "%d acknowledged, %d Clears, in %d sessions", v.notes.saves, v.notes.clears, len(c.sessions)-p.sessions)
	row("killed", "%s", list(n.kills))
	row("stopped for longer than the TTL", "%s", list(n.pauses))
	row("masters killed", "%d; none for %s at most", len(c.failovers), round(n.failovers))
	row("all connections to Redis cut", "%d times", n.hangUps)
	row("handed out", "%s", list(n.handed))
	row("attempts", "%s", list(n.endings))
	row("Saves repeated in place", "%d", n.repeated)
	row("outcome unknown", "%d stored, %d not stored", v.unknown.stored, v.unknown.not)
	row("writes after a pause, past all checks", "%d refused, %d of them while the next holder had only loaded; %d let in as nobody had loaded since; %d unknown",
		v.past.refused, v.past.loadedOnly, v.past.unopposed, v.past.unknown)
	row("writes after a pause, checked", "%d stopped by the lease", n.checked)
	longest := time.Duration(0)
	if len(n.recovered) > 0 {
		longest = slices.Max(n.recovered)
	}
	row("a session goes on after its holder was struck", "after %s at most, of %d; %s where others were struck too; TTL %s", round(longest), len(n.recovered),
		round(n.slowest), p.ttl)
	if len(c.failovers) > 0 {
		row("forgotten by the server", "%d turns, the first sent %s before the master was dead; %d more were stored again; %d notes",
			v.forgotten, round(v.oldest), v.restored, v.notes.forgotten)
		if p.asMaster {
			row("taken by a master that was none any more", "%d turns", v.strayed)
		}
		row("outlived what the server forgot", "%d answers, %d writes past all checks", v.outlived, v.past.outlived)
	}
	counts := c.counts()
	row("stored", "%d turns: %d lost, %d torn, %d doubled, %d out of order, %d stale; %d stale writes let in; %d other failures", v.stored,
		counts[integrity.Lost], counts[integrity.Torn], counts[integrity.Doubled], counts[integrity.OutOfOrder], counts[integrity.Stale],
		counts[letIn], counts[failure])
	_ = w.Flush()
	return text.String()
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// list says how many of each there are.
func list[K ~string](counts map[K]int) string {
	parts := []string{fmt.Sprint(sum(counts))}
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[k], k))
	}
	return parts[0] + ": " + strings.Join(parts[1:], ", ")
}
