package campaign

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// stat holds the figures of one fault on one topology.
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

// report is the text of one topology.
func (c *campaign) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, l := c.register, c.ledger
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, "  "+format+"\n", args...) }
	struck, missed := c.struck()
	fmt.Fprintf(&text, "%s, %s, seed %d: %d faults, and %d that came to nothing\n",
		c.plan.on, c.took.Round(100*time.Millisecond), c.plan.seed, struck, missed)
	line("what came of acquisitions and Loads: %s", list[string](r.counts))
	line("%d violations; %d critical sections", len(c.wrong), r.sections)
	line("%d turns, %d notes, %d Clears acknowledged; %d sessions judged", l.tally.turns, l.tally.notes, l.tally.clears, l.tally.sessions)
	line("exchanges that stood there: %d in the end, %d before servers were emptied, when %d sessions could not be read",
		l.tally.stored, l.tally.before, l.tally.unread)
	line("attempts: %s", list(l.tally.endings))
	line("stale accesses refused: %d by the register, which took %d acts; %d of %d writes past all checks by the store",
		r.stale, r.acts, l.tally.strayRefused, l.tally.stray)
	line("met another inside: %d had been told in time, %d by Close, %d in a process that was not let run, %d were killed before they said",
		r.told, r.closed, c.starved, r.undecided)
	line("lost by the servers: %d turns and notes; %d answers came from lost turns", l.tally.forgotten, l.tally.outlived)
	stood := stalls(c.watch, c.start, now())
	line("the machine let the parent wait %d times, for %s in all; %d waits for keys without any other waiter; %d runs of workers",
		len(stood), overlap(stood, c.start, now()).Round(time.Millisecond), c.unseen, c.runs)
	line("histories: %d with %d operations, %d undecided; %d not checked: lost",
		c.histories.checked, c.histories.ops, c.histories.undecided, c.histories.skipped)
	return text.String()
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

// during counts the violations while a fault was felt. It needs c.mu.
func (c *campaign) during(f *fault) (n int) {
	for _, w := range c.wrong {
		c.windows.mu.Lock()
		felt := func(v *window) bool { return v.fault == f && v.from <= w.at && w.at <= v.until }
		if w.fault == f || slices.ContainsFunc(c.windows.all, felt) {
			n++
		}
		c.windows.mu.Unlock()
	}
	return n
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%s, %s (%d)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), len(all))
}

// summary is what a document about a run says, in Markdown. It has a row for each fault on each topology.
func summary(all []*campaign, lasts time.Duration, seed uint64, command string) string {
	var text strings.Builder
	var servers []string
	for _, c := range all {
		if !slices.Contains(servers, c.version) {
			servers = append(servers, c.version)
		}
	}
	fmt.Fprintf(&text, "`%s`: %s, seed %d, %d cores, Go %s, %s.\n\n", command, lasts.Round(time.Second), seed, runtime.NumCPU(),
		strings.TrimPrefix(runtime.Version(), "go"), strings.Join(servers, ", "))
	text.WriteString("| Fault | On | S1 | Times, came to nothing | Violations | In the window of ✗ | Recovery: median, worst (of) |")
	text.WriteString(" During other faults, or while the machine stood |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range append(slices.Clone(allFaults), replaced, resigned) {
		promised := "yes"
		if f.breaks {
			promised = "✗"
		}
		for _, c := range all {
			c.mu.Lock()
			if s := c.stats[f]; s != nil {
				fmt.Fprintf(&text, "| %s | %s | %s | %d, %d | %d | %s | %s | %s |\n",
					f.name, c.plan.on, promised, s.times, s.missed, c.during(f), list(s.apart), spread(s.recovered), spread(s.disturbed))
			}
			c.mu.Unlock()
		}
	}
	return text.String()
}
