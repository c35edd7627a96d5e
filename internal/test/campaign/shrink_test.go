package campaign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// tries is how often a trial with faults looks for a finding: what they meet differs from run to run.
const tries = 3

// shrink looks for the fewest faults of a run with which it still fails, and returns the command
// that repeats them.
func (c *campaign) shrink(t *testing.T, limit time.Duration) string {
	first, deadline := c.wrong[0], time.Now().Add(limit)
	trial := func(hits []*hit) bool {
		p := c.plan
		p.hits, p.until, p.lasts = ids(hits), []string{first.kind}, lastsOf(hits)
		for n := range tries {
			found := false
			name := fmt.Sprintf("%d faults, try %d", len(hits), n)
			t.Run(name, func(t *testing.T) {
				d := newCampaign(t, p)
				d.run()
				found = slices.ContainsFunc(d.wrong, func(f *finding) bool { return f.kind == first.kind })
			})
			if found || len(hits) == 0 || time.Now().After(deadline) {
				return found
			}
		}
		return false
	}
	hits := c.suspects(first)
	switch {
	case !trial(hits):
		return fmt.Sprintf("%s was not found again with %d faults around it: %s", first.kind, len(hits), c.again(hits))
	case len(hits) > 0 && trial(nil):
		return fmt.Sprintf("%s is found without any fault: %s", first.kind, c.again(nil))
	}
	hits = fewest(hits, func(some []*hit) bool { return time.Now().Before(deadline) && trial(some) })
	return fmt.Sprintf("%s is found with %d faults: %s", first.kind, len(hits), c.again(hits))
}

// suspects are the hits that were felt shortly before a finding, or during it; all of them, if there
// is none.
func (c *campaign) suspects(f *finding) (some []*hit) {
	from, until := f.at-3*int64(c.plan.ttl), max(f.at, f.until)
	for _, h := range c.hits {
		if h.window.from <= until && h.window.until >= from {
			some = append(some, h)
		}
	}
	if some == nil {
		return c.hits
	}
	return some
}

func (c *campaign) again(hits []*hit) string {
	numbers := strings.Join(ids(hits), ",")
	if hits == nil {
		numbers = "none"
	}
	return makes(strings.Join(c.plan.works, ","), c.plan.on, lastsOf(hits), c.plan.seed, numbers)
}

func ids(hits []*hit) []string {
	all := []string{}
	for _, h := range hits {
		all = append(all, h.id())
	}
	return all
}

// lastsOf is how long a run with these faults takes.
func lastsOf(hits []*hit) time.Duration {
	sum := 5 * time.Second
	for _, h := range hits {
		sum += h.pause + h.lasts + h.heals
		if h.alone { // it waits before and after
			sum += 4 * time.Second
		}
	}
	return sum
}

// fewest returns a part of all with which something still fails, and that has no smaller such part
// among those that are tried. It is the algorithm ddmin of Zeller and Hildebrandt (2002).
func fewest[T any](all []T, fails func([]T) bool) []T {
	for parts := 2; len(all) > 1; {
		size, smaller := (len(all)+parts-1)/parts, []T(nil)
		for from := 0; from < len(all) && smaller == nil; from += size {
			to := min(from+size, len(all))
			part, rest := all[from:to], slices.Concat(all[:from], all[to:])
			switch {
			case fails(part):
				smaller, parts = part, 2
			case parts > 2 && fails(rest):
				smaller, parts = rest, max(parts-1, 2)
			}
		}
		switch {
		case smaller != nil:
			all = smaller
		case parts >= len(all):
			return all
		default:
			parts = min(2*parts, len(all))
		}
	}
	return all
}

// A run whose workers are told late of a lost lease fails when the network is cut, and needs no other
// fault for that.
func TestCampaign_shrinks(t *testing.T) {
	for try := range uint64(4) { // a fault may come at a bad moment
		p := planFor("node", try, 20*time.Second)
		p.broken, p.faults, p.strikes, p.until, p.workers = lateNotice, []string{"cut off", "contexts cancelled"}, 4, []string{"N"}, 3
		c := newCampaign(t, p)
		c.run()
		if len(c.wrong) == 0 {
			continue
		}
		c.hits = slices.DeleteFunc(c.hits, func(h *hit) bool { return h.missed })
		text := c.shrink(t, time.Minute)
		if t.Log(text); strings.Contains(text, "with 1 faults") {
			return
		}
	}
	t.Error("no run was shrunk to one fault")
}
