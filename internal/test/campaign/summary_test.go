package campaign

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
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
