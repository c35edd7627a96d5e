package campaign

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// columns are those of the table of topologies. The last row has their sums.
var columns = []struct {
	title string
	of    func(c *campaign) []int
}{
	{"Critical sections", func(c *campaign) []int { return []int{c.register.sections} }},
	{"Turns and notes acknowledged", func(c *campaign) []int { return []int{c.ledger.tally.turns + c.ledger.tally.notes} }},
	{"Faults, came to nothing", func(c *campaign) []int { struck, missed := c.struck(); return []int{struck, missed} }},
	{"Violations outside ✗", func(c *campaign) []int { return []int{len(c.wrong)} }},
	{"Told late, not let run", func(c *campaign) []int { return []int{c.starved} }},
	{"Stale writes accepted", func(c *campaign) []int { return []int{c.count(isStaleWrite)} }},
	{"Writes past all checks, refused", func(c *campaign) []int { return []int{c.ledger.tally.stray, c.ledger.tally.strayRefused} }},
	{"Stale accesses refused by the register", func(c *campaign) []int { return []int{c.register.stale} }},
	{"Histories checked, undecided", func(c *campaign) []int { return []int{c.histories.checked, c.histories.undecided} }},
}

func isStaleWrite(f *finding) bool { return f.kind == "S2" }

// kills are the recoveries after a holder was killed, when nothing else happened.
func kills(all []*campaign) (kills []time.Duration) {
	for _, c := range all {
		for f, s := range c.stats {
			if f.name == holderKilled {
				kills = append(kills, s.recovered...)
			}
		}
	}
	return kills
}

// failure is what no run may have, whatever its topologies have said: the two figures for which
// this library is made.
func failure(all []*campaign) (err error) {
	accepted, bar := 0, time.Duration(0)
	for _, c := range all {
		accepted, bar = accepted+c.count(isStaleWrite), max(bar, c.plan.bar())
	}
	if accepted > 0 {
		err = fmt.Errorf("%d stale writes were accepted", accepted)
	}
	if kills := kills(all); len(kills) > 0 && slices.Max(kills) > bar {
		err = errors.Join(err, fmt.Errorf("after a holder was killed, no worker had the lock for %s; at most %s are promised", slices.Max(kills), bar))
	}
	return err
}

// summary is what a document about a run says, in Markdown.
func summary(all []*campaign, lasts time.Duration, seed uint64, command string) string {
	var text strings.Builder
	var servers []string
	for _, c := range all {
		if c.version != "" && !slices.Contains(servers, c.version) {
			servers = append(servers, c.version)
		}
	}
	if servers == nil {
		servers = []string{"no server"}
	}
	fmt.Fprintf(&text, "`%s`: %s, seed %d, %d cores, Go %s, %s.\n\n| On | Time |",
		command, lasts.Round(time.Second), seed, runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), strings.Join(servers, ", "))
	for _, column := range columns {
		fmt.Fprintf(&text, " %s |", column.title)
	}
	fmt.Fprintf(&text, " After a killed holder: median, worst (of) | Promised |\n%s|\n", strings.Repeat("|---", len(columns)+4))
	row := func(on string, all ...*campaign) {
		took := time.Duration(0)
		for _, c := range all {
			took += c.took
		}
		fmt.Fprintf(&text, "| %s | %s |", on, took.Round(time.Second))
		for _, column := range columns {
			var sums []int
			for _, c := range all {
				for i, n := range column.of(c) {
					sums = append(sums, 0)[:max(len(sums), i+1)]
					sums[i] += n
				}
			}
			fmt.Fprintf(&text, " %s |", strings.ReplaceAll(strings.Trim(fmt.Sprint(sums), "[]"), " ", ", "))
		}
		fmt.Fprintf(&text, " %s | %s |\n", spread(kills(all)), all[0].plan.bar())
	}
	for _, c := range all {
		row(c.plan.on, c)
	}
	row("all", all...)
	return text.String() + "\n" + table(all)
}

// table has a row for each fault on each topology.
func table(all []*campaign) string {
	var text strings.Builder
	text.WriteString("| Fault | On | S1 | Times, came to nothing | Violations | In the window of ✗ | Recovery: median, worst (of) |")
	text.WriteString(" During other faults, or while the machine stood |\n")
	text.WriteString("|---|---|---|---|---|---|---|---|\n")
	row := func(c *campaign, f *fault, times string, wrong int, s *stat) {
		promised := "yes"
		if f.breaks {
			promised = "✗"
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %d | %s | %s | %s |\n",
			f.name, c.plan.on, promised, times, wrong, list(s.apart), spread(s.recovered), spread(s.disturbed))
	}
	for _, f := range append(slices.Clone(allFaults), replaced) {
		for _, c := range all {
			c.mu.Lock()
			if s := c.stats[f]; s != nil {
				row(c, f, fmt.Sprintf("%d, %d", s.times, s.missed), c.during(f), s)
			}
			c.mu.Unlock()
		}
	}
	// How often the work itself was hostile: critical sections under such names, and messages in
	// which there was something.
	for _, c := range all {
		named := c.count(func(f *finding) bool { return strange(f.key) })
		row(c, hostileNames, fmt.Sprint(c.register.strange), named, &stat{})
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
func TestFailure(t *testing.T) {
	for _, test := range []struct {
		name   string
		kills  []time.Duration
		kind   string
		fails  bool
		totals string // of two such runs
	}{
		{"nothing", nil, "", false, "| 0, 0 | 0 | 0 | 0 |"},
		{"in time", []time.Duration{time.Millisecond, 2 * time.Second}, "N", false, "| 0, 0 | 2 | 0 | 0 |"},
		{"too late", []time.Duration{2*time.Second + 1, time.Millisecond}, "N", true, "| 0, 0 | 2 | 0 | 0 |"},
		{"a stale write", nil, "S2", true, "| 0, 0 | 2 | 0 | 2 |"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := book(t)
			c.histories = newHistories(c)
			if test.kind != "" {
				c.wrong = []*finding{{kind: test.kind}}
			}
			s := c.stat(workerFaults[0])
			s.recovered, s.disturbed = test.kills, []time.Duration{time.Minute}
			if err := failure([]*campaign{c, c}); (err != nil) != test.fails {
				t.Errorf("%v, want a failure: %t", err, test.fails)
			}
			text := summary([]*campaign{c, c}, time.Minute, 1, "")
			if _, all, _ := strings.Cut(text, "| all |"); !strings.Contains(strings.SplitN(all, "\n", 2)[0], test.totals) {
				t.Errorf("the totals are\n%s\nwant %s", text, test.totals)
			}
		})
	}
}
