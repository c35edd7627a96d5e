package campaign

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// fault is one kind of fault.
type fault struct {
	name   string
	on     []string // topologies
	breaks bool     // mutual exclusion is not promised during the fault
	barred bool     // there is a promise of how soon others work, which holds if nothing else strikes
	turns  bool     // it strikes at turns
	of     party
	// It lasts for some time between these.
	short, long time.Duration
	heals       time.Duration // and takes so long to be healed, about
	strike      func(c *campaign, h *hit)
}

const ms = time.Millisecond

// party is the target of a fault. Faults of workers and of servers go on side by side, one of each
// at a time.
type party string

const (
	ofWorker party = "worker"
	ofServer party = "server"
)

// hit is one time that a fault strikes. All of it but what it holds on to is drawn before: so the
// seed repeats it.
type hit struct {
	*fault
	n       int
	victim  int // a number, of which the fault makes a worker or a server
	lasts   time.Duration
	rng     *rand.Rand
	pause   time.Duration // before it
	alone   bool          // when no other fault is felt, if it is barred
	window  *window
	at      int64
	restore func() // heals it; nil: it heals by itself
	missed  bool   // it came to nothing
}

// id is the number of a hit in HITS: "worker-3".
func (h *hit) id() string { return fmt.Sprintf("%s-%d", h.of, h.n) }

var (
	redises    = []string{"node", "sentinel", "cluster"} // locks and sessions are on one server
	scripted   = slices.Concat(redises, servers.Quorums)
	everywhere = append(slices.Clone(scripted), "postgres")
)

// mixed are the workloads that the hands of each worker have side by side.
var mixed = []string{"lock", "session", "draft", "election", "stop", "inbox"}

// chaos are the faults of -faults chaos.
var chaos = []string{
	"killed at a moment of a turn", "stopped at a moment of a turn", "clients disconnected",
	"server restarted empty", "server crashes", "master killed", "failover that loses the last writes", nodesKilled,
}

var allFaults = slices.Concat(
	workerFaults, networkFaults, serverFaults, failoverFaults, quorumFaults, postgresFaults)

// replaced is what servers do by themselves when the machine is too busy for them.
var replaced = &fault{name: "a live master is replaced", on: []string{"sentinel", "cluster"}, breaks: true, of: ofServer}

func faultsFor(p *plan, of party) (faults []*fault) {
	for _, f := range allFaults {
		if f.of == of && slices.Contains(f.on, p.on) && (!f.turns || slices.Contains(p.works, "session")) && (p.faults == nil || slices.Contains(p.faults, f.name)) {
			faults = append(faults, f)
		}
	}
	return faults
}

// strikeFor causes faults until the time is over, which begins with the first work: processes start
// as fast as the machine allows.
func (c *campaign) strikeFor(lasts time.Duration) {
	servers.Within(20*time.Second, func() bool { return c.counted(sections) > 0 })
	until := time.Now().Add(lasts)
	time.Sleep(min(lasts/4, time.Second)) // until all work
	var strikers sync.WaitGroup
	for _, of := range []party{ofServer, ofWorker} { // each in its goroutine, which a failure of a server ends
		strikers.Go(func() { c.striker(of, until) })
	}
	strikers.Wait()
	servers.Within(time.Until(until), c.hasFound)
}

func (c *campaign) hasFound() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan.until != nil && !slices.ContainsFunc(c.plan.until, func(kind string) bool {
		return !slices.ContainsFunc(c.findings, func(f *finding) bool { return f.kind == kind })
	})
}

// deck draws the hits of one party, in an order that is drawn anew when all faults have been. What it
// draws depends on the seed alone. It returns nil if there are none.
func (p *plan) deck(of party) (next func() *hit) {
	faults := faultsFor(p, of)
	if len(faults) == 0 {
		return func() *hit { return nil }
	}
	rng, n := stream(p.seed, p.on+" "+string(of)), 0
	var left []*fault
	return func() *hit {
		if len(left) == 0 {
			left = slices.Clone(faults)
			rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		h := &hit{fault: left[0], n: n, victim: rng.IntN(1 << 20)}
		left, n = left[1:], n+1
		h.lasts = h.short + time.Duration(rng.Float64()*float64(h.long-h.short))
		h.rng = rand.New(rand.NewPCG(rng.Uint64(), uint64(h.n)))
		h.pause = 50*time.Millisecond + time.Duration(rng.Float64()*float64(p.calm-50*time.Millisecond))
		h.alone = rng.IntN(2) == 0 && h.barred
		return h
	}
}

func (c *campaign) striker(of party, until time.Time) {
	next := c.plan.deck(of)
	for h := next(); h != nil && h.n < maxHits; h = next() {
		if c.plan.hits != nil && !slices.Contains(c.plan.hits, h.id()) {
			continue
		}
		// What does not end in time is not begun.
		if time.Until(until) < h.lasts+h.heals+h.pause || c.plan.strikes > 0 && h.n >= c.plan.strikes ||
			c.ctx.Err() != nil || c.t.Failed() || c.hasFound() {
			return
		}
		time.Sleep(h.pause)
		if h.alone {
			c.causeAlone(h)
		} else {
			c.causeAmongOthers(h)
		}
	}
}

func (c *campaign) causeAmongOthers(h *hit) {
	c.alone.RLock()
	defer c.alone.RUnlock() // a failure of a server ends the goroutine
	c.cause(h)
}

const maxHits = 10_000

func (c *campaign) cause(h *hit) {
	h.at = now()
	run := 0
	if h.of == ofWorker {
		run = noRun // until the target is known
	}
	h.window = c.windows.open(h.fault, run, h.at)
	c.say("%s: %s, victim %d, for %s", h.id(), h.name, h.victim, h.lasts.Round(time.Millisecond))
	defer c.windows.close(h.window)
	h.strike(c, h)
	if !h.missed {
		time.Sleep(time.Duration(h.at-now()) + h.lasts)
	}
	if h.restore != nil {
		h.restore()
	}
	c.tally(h)
}

func (c *campaign) tally(h *hit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.stat(h.fault); h.missed {
		s.missed++
	} else {
		s.times++
		c.hits = append(c.hits, h)
	}
}

// misses notes that a strike came to nothing, and why: it does not count.
func (c *campaign) misses(h *hit, format string, args ...any) {
	h.missed = true
	c.say("%s came to nothing: %s", h.id(), fmt.Sprintf(format, args...))
}

// causeAlone causes a fault when no other is felt, and none begins before others work again.
func (c *campaign) causeAlone(h *hit) {
	c.alone.Lock()
	defer c.alone.Unlock()
	quiet := func() bool { at := now(); return c.windows.others(nil, at-int64(c.plan.ttl), at) == nil }
	if !servers.Within(3*c.plan.ttl, quiet) || c.ctx.Err() != nil {
		c.misses(h, "others are still felt")
		c.tally(h)
		return
	}
	c.cause(h)
	servers.Within(c.plan.bar()+500*time.Millisecond, func() bool { return !c.register.awaited(h) })
}

// aims narrows the window of a hit to one worker.
func (h *hit) aims(c *campaign, w *worker) {
	c.windows.mu.Lock()
	defer c.windows.mu.Unlock()
	h.window.run = w.run
}

// someone is the worker that the fault hits; nil if no worker runs now.
func (c *campaign) someone(h *hit) (w *worker) {
	s := c.slots[h.victim%len(c.slots)]
	if servers.Within(time.Second, func() bool { w = s.worker.Load(); return w != nil }) {
		h.aims(c, w)
	} else {
		c.misses(h, "there is no worker")
	}
	return w
}

func (c *campaign) proxied(h *hit) *slot { return c.slots[h.victim%c.plan.proxied] }

// await waits for others to work with what a worker holds now, and with the keys that all want if
// it holds none.
func (c *campaign) await(h *hit, run int, keys []string, bar time.Duration) {
	for _, key := range keys {
		if strings.Contains(key, "/stop-") || strings.Contains(key, "/inbox-") { // all waiters may have left
			bar = 0
		}
		c.register.await(&wait{h: h, key: key, since: now(), not: run, bar: bar})
	}
}

func (c *campaign) hot() []string {
	if !slices.Contains(c.plan.works, "lock") {
		return nil
	}
	return hotKeysOf(c.epoch())
}

func (c *campaign) epoch() int { return epoch(now(), c.start, c.plan.rotate) }

func hotKeysOf(e int) (keys []string) {
	for n := range hotKeys {
		keys = append(keys, hotKey(e, n))
	}
	return keys
}

// bar is how soon others work when a holder was killed.
func (p *plan) bar() time.Duration { return p.ttl + time.Second }

// tries is how often a trial with faults looks for a finding: what they meet differs from run to run.
const tries = 3

// shrink looks for the fewest faults of a run with which it still fails, and returns the command
// that repeats them.
func (c *campaign) shrink(t *testing.T, limit time.Duration) string {
	deadline := time.Now().Add(limit)
	return c.fewest(c.wrong[0], func(hits []*hit) bool { return time.Now().Before(deadline) && c.trial(t, hits) })
}

// trial reports whether the first finding of a run is found again with some of its faults.
func (c *campaign) trial(t *testing.T, hits []*hit) (found bool) {
	kind, p := c.wrong[0].kind, c.plan
	p.hits, p.until, p.lasts = ids(hits), []string{kind}, lastsOf(hits)
	for n := 0; n < tries && !found && (n == 0 || len(hits) > 0); n++ {
		t.Run(fmt.Sprintf("%d faults, try %d", len(hits), n), func(t *testing.T) {
			d := newCampaign(t, p)
			d.run()
			found = slices.ContainsFunc(d.wrong, func(f *finding) bool { return f.kind == kind })
		})
	}
	return found
}

func (c *campaign) fewest(first *finding, trial func([]*hit) bool) string {
	hits := c.suspects(first)
	switch {
	case !trial(hits):
		return fmt.Sprintf("%s was not found again with %d faults around it: %s", first.kind, len(hits), c.again(hits))
	case len(hits) > 0 && trial(nil):
		return fmt.Sprintf("%s is found without any fault: %s", first.kind, c.again(nil))
	}
	hits = fewest(hits, trial)
	return fmt.Sprintf("%s is found with %d faults: %s", first.kind, len(hits), c.again(hits))
}

// suspects are the hits that were felt shortly before a finding, or during it, or else all.
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

// Some faults of six are to blame, or something else is.
func TestShrink(t *testing.T) {
	c := book(t)
	for n := range 6 {
		h := &hit{fault: workerFaults[0], n: n, window: c.windows.open(workerFaults[0], 0, now())}
		c.hits = append(c.hits, h)
	}
	all := ids(c.hits)
	for _, test := range []struct {
		blame []string
		want  string
	}{
		{all[3:4], "L is found with 1 faults: make faults WORK=lock,session,draft,election,stop,inbox ON=node MINUTES=0.0833 SEED=1 HITS=worker-3"},
		{[]string{all[0], all[4], all[5]}, "L is found with 3 faults: make faults WORK=lock,session,draft,election,stop,inbox ON=node MINUTES=0.0833 SEED=1 HITS=worker-0,worker-4,worker-5"},
		{nil, "L is found without any fault: make faults WORK=lock,session,draft,election,stop,inbox ON=node MINUTES=0.0833 SEED=1 HITS=none"},
		{[]string{"worker-9"}, "L was not found again with 6 faults around it"},
	} {
		text := c.fewest(&finding{kind: "L", at: now()}, func(some []*hit) bool {
			return !slices.ContainsFunc(test.blame, func(id string) bool { return !slices.Contains(ids(some), id) })
		})
		if !strings.HasPrefix(text, test.want) {
			t.Errorf("%s; want %s", text, test.want)
		}
	}
}

// stream is one of the streams of random numbers of a run: what one part of it draws does not depend
// on how often another has drawn.
func stream(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

// now is the time on the clock that all processes of a run share, in nanoseconds.
func now() int64 { return time.Now().UnixNano() }
