package randomfaults

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// totals are those of one topology, or of all.
type totals struct {
	on                      string
	lasted                  time.Duration
	sections, turns, faults int
	missed                  int // faults that came to nothing
	refused                 int // stale accesses, by the register
	stray, strayRefused     int // writes past all checks, and those that the store has refused
	accepted                int // stale writes
	wrong                   int // violations outside the windows of ✗
	starved                 int // who were told late in a process that was not let run
	histories, undecided    int
	kills                   []time.Duration // recoveries after a holder was killed, when nothing else happened
	bar                     time.Duration   // of these
}

func (c *campaign) totals() (t totals) {
	accepted := c.count(func(f *finding) bool { return f.kind == "S2" })
	c.mu.Lock()
	defer c.mu.Unlock()
	t = totals{
		on: c.plan.on, lasted: c.took, sections: c.register.sections, turns: c.ledger.tally.turns + c.ledger.tally.notes,
		refused: c.register.stale, stray: c.ledger.tally.stray, strayRefused: c.ledger.tally.strayRefused,
		accepted: accepted, wrong: len(c.wrong), starved: c.starved,
		histories: c.histories.checked, undecided: c.histories.undecided, bar: c.plan.bar(),
	}
	t.faults, t.missed = c.struck()
	for f, s := range c.stats {
		if f.name == holderKilled {
			t.kills = append(t.kills, s.recovered...)
		}
	}
	return t
}

// sum is that of all topologies.
func sum(all []*campaign) totals {
	t := totals{on: "all"}
	for _, c := range all {
		u := c.totals()
		t.lasted += u.lasted
		t.sections += u.sections
		t.turns += u.turns
		t.faults += u.faults
		t.missed += u.missed
		t.refused += u.refused
		t.stray += u.stray
		t.strayRefused += u.strayRefused
		t.starved += u.starved
		t.accepted += u.accepted
		t.wrong += u.wrong
		t.histories += u.histories
		t.undecided += u.undecided
		t.kills = append(t.kills, u.kills...)
		t.bar = max(t.bar, u.bar)
	}
	return t
}

// failure is what no run may have, whatever its topologies have said: the two figures for which this library is made.
func (t totals) failure() (err error) {
	if t.accepted > 0 {
		err = fmt.Errorf("%d stale writes were accepted", t.accepted)
	}
	if len(t.kills) > 0 && slices.Max(t.kills) > t.bar {
		err = errors.Join(err, fmt.Errorf("after a holder was killed, nobody worked for %s; at most %s are promised", slices.Max(t.kills), t.bar))
	}
	return err
}

// summary is what a document about a run says, in Markdown.
func summary(all []*campaign, lasts time.Duration, seed uint64, command string) string {
	var text strings.Builder
	redis := "no Redis"
	for _, c := range all {
		if c.service != nil {
			redis = "Redis " + c.version
		}
	}
	fmt.Fprintf(&text, "`%s`: %s, seed %d, %d cores, Go %s, %s.\n\n",
		command, lasts.Round(time.Second), seed, runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), redis)
	text.WriteString("| On | Time | Critical sections | Turns and notes acknowledged | Faults, came to nothing | Violations outside ✗ |")
	text.WriteString(" Told late, not let run | Stale writes accepted | Writes past all checks, refused | Stale accesses refused by the register |")
	text.WriteString(" Histories checked, undecided | After a killed holder: median, worst (of) | Promised |\n")
	text.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	row := func(t totals) {
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %d, %d | %d | %d | %d | %d, %d | %d | %d, %d | %s | %s |\n",
			t.on, t.lasted.Round(time.Second), t.sections, t.turns, t.faults, t.missed, t.wrong, t.starved, t.accepted,
			t.stray, t.strayRefused, t.refused, t.histories, t.undecided, spread(t.kills), t.bar)
	}
	for _, c := range all {
		row(c.totals())
	}
	row(sum(all))
	text.WriteString("\n")
	text.WriteString(table(all))
	return text.String()
}

// table has a row for each fault on each topology.
func table(all []*campaign) string {
	var text strings.Builder
	text.WriteString("| Fault | On | S1 | Times, came to nothing | Violations | In the window of ✗ | Recovery: median, worst (of) |")
	text.WriteString(" While others struck, or the machine stood |\n")
	text.WriteString("|---|---|---|---|---|---|---|---|\n")
	row := func(c *campaign, f *fault, times string, wrong int, s *stat) {
		promised := "yes"
		if f.breaks {
			promised = "✗"
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %d | %s | %s | %s |\n",
			f.name, c.plan.on, promised, times, wrong, list(s.apart), spread(s.recovered), spread(s.disturbed))
	}
	for _, f := range slices.Concat(workerFaults, networkFaults, serverFaults, foreignFaults, failoverFaults, []*fault{replaced}) {
		for _, c := range all {
			c.mu.Lock()
			if s := c.stats[f]; s != nil {
				row(c, f, fmt.Sprintf("%d, %d", s.times, s.missed), c.during(f), s)
			}
			c.mu.Unlock()
		}
	}
	// How often the work itself was hostile: critical sections under such names, and messages in which there was something.
	for _, c := range all {
		named := c.count(func(f *finding) bool { return strange(f.key) })
		row(c, hostileNames, fmt.Sprint(c.register.strange), named, &stat{})
	}
	for _, c := range all {
		changed := c.count(func(f *finding) bool { return f.kind == "content" })
		row(c, hostileContent, fmt.Sprint(c.ledger.tally.hostile), changed, &stat{})
	}
	return text.String()
}

// count counts the violations of a kind.
func (c *campaign) count(is func(*finding) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.wrong {
		if is(f) {
			n++
		}
	}
	return n
}

// A stale write, or a killed holder that is waited for too long, fails a run.
func TestTotals_failure(t *testing.T) {
	for _, test := range []struct {
		totals totals
		fails  bool
	}{
		{totals{bar: time.Second}, false},
		{totals{bar: time.Second, kills: []time.Duration{time.Millisecond, time.Second}}, false},
		{totals{bar: time.Second, kills: []time.Duration{time.Second + 1, time.Millisecond}}, true},
		{totals{bar: time.Second, accepted: 1}, true},
	} {
		if err := test.totals.failure(); (err != nil) != test.fails {
			t.Errorf("%+v: %v, want a failure: %t", test.totals, err, test.fails)
		}
	}
	c := book(t)
	c.histories = newHistories(c)
	c.wrong = []*finding{{kind: "S2"}, {kind: "N"}}
	s := c.stat(workerFaults[0])
	s.recovered, s.disturbed = []time.Duration{time.Second}, []time.Duration{time.Minute}
	got := sum([]*campaign{c, c})
	if got.accepted != 2 || got.wrong != 4 || len(got.kills) != 2 || slices.Max(got.kills) != time.Second {
		t.Errorf("%+v; want 2 stale writes of 4 violations, and 2 recoveries of at most a second", got)
	}
}
