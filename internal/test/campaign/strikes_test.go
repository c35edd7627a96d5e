package campaign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
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
var mixed = []string{"lock", "session", "draft", "election"}

// chaos are the faults of -faults chaos.
var chaos = []string{
	"killed at a moment of a turn", "stopped at a moment of a turn", "clients disconnected",
	"server restarted empty", "server crashes", "master killed", "failover that loses the last writes", nodesKilled,
}

var allFaults = slices.Concat(
	workerFaults, networkFaults, serverFaults, failoverFaults, quorumFaults, postgresFaults)

// replaced is what servers do by themselves when the machine is too busy for them.
var replaced = &fault{name: "a live master is replaced", on: []string{"sentinel", "cluster"}, breaks: true, of: ofServer}

// faultsFor are those of a topology.
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
	servers.Within(20*time.Second, c.register.used)
	until := time.Now().Add(lasts)
	time.Sleep(min(lasts/4, time.Second)) // until all work
	var strikers sync.WaitGroup
	for _, of := range []party{ofServer, ofWorker} { // each in its goroutine, which a failure of a server ends
		strikers.Go(func() { c.striker(of, until) })
	}
	strikers.Wait()
	servers.Within(time.Until(until), c.hasFound)
}

// hasFound reports whether the run has found what it is to find.
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

// striker causes the faults of one party, one after the other.
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
			continue
		}
		c.alone.RLock()
		c.cause(h)
		c.alone.RUnlock()
	}
}

// maxHits is more than any run has.
const maxHits = 10_000

// cause causes a fault and heals it.
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

// tally counts a hit.
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

// forgets begins the window of a master's loss, in the moment before the kill. over is called when
// there is a master that takes writes.
func (c *campaign) forgets(h *hit) (over func()) {
	c.windows.begin(h.window)
	return func() { c.windows.close(h.window) }
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
	if servers.Within(time.Second, func() bool { w = s.now(); return w != nil }) {
		h.aims(c, w)
	} else {
		c.misses(h, "there is no worker")
	}
	return w
}

// proxied is the slot of a worker whose network the fault breaks.
func (c *campaign) proxied(h *hit) *slot { return c.slots[h.victim%c.plan.proxied] }

// await waits for others to work with what a worker holds now, and with the keys that all want if
// it holds none.
func (c *campaign) await(h *hit, run int, keys []string, bar time.Duration) {
	for _, key := range keys {
		c.register.await(&wait{h: h, key: key, since: now(), not: run, bar: bar})
	}
}

// hot are the keys that all want now.
func (c *campaign) hot() []string {
	if !slices.Contains(c.plan.works, "lock") {
		return nil
	}
	return hotKeysOf(c.epoch())
}

// epoch is that of now.
func (c *campaign) epoch() int { return epoch(now(), c.start, c.plan.rotate) }

func hotKeysOf(e int) (keys []string) {
	for n := range hotKeys {
		keys = append(keys, hotKey(e, n))
	}
	return keys
}

// bar is how soon others work when a holder was killed.
func (p *plan) bar() time.Duration { return p.ttl + time.Second }
