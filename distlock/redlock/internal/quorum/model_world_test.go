package quorum_test

import (
	"fmt"
	"math/rand/v2"
)

// The units of the model are µs, except that its long times are short enough to pass often.
const (
	modelTTL       = 10_000
	modelDrift     = 200            // see package trust
	modelLimit     = 2_500          // of a call
	modelGrace     = 300            // for slow nodes, in a race
	modelRace      = 5_000          // an older holder is in no race
	modelAhead     = 150 * modelTTL // stands for 365 days
	modelLate      = 3 * modelTTL   // after its sending a request no longer arrives
	modelTombstone = modelLate + modelTTL
	modelKeep      = 20 * modelTTL // stands for 24 h
	modelBlock     = 256
	modelEpoch     = 100 * modelTTL // of the nodes' clocks
	modelLength    = 6 * modelTTL   // of a run
)

// modelFaults says what happens in one run.
type modelFaults struct {
	lose, duplicate, late float64 // of messages
	skew                  int64   // of the nodes' clocks
	restarts, outages     bool
	storm                 bool  // they are many and short
	flaps                 int   // links that change at a time
	pace                  int64 // of the faults of nodes, in TTLs
	replicas              bool
	crashes               bool
	calm                  bool // clients stay away for long: nodes remove the record
	raises                bool
	far                   int64 // how far a raise may go
	mad                   bool  // the clock of node 0 is years ahead
}

// modelWorld is one run.
type modelWorld struct {
	without rule
	rng     *rand.Rand
	block   int64
	ttl     int64 // the longest, and RestartDelay
	faults  modelFaults
	now     int64
	last    int64 // the moment of the last event
	events  modelEvents
	links   [][5]modelLink // from clients to nodes
	heldUp  int64
	sent    int // events, for their order
	nodes   []*modelNode
	clients []*modelClient
	owners  int
	highest int64 // token that a client has used
	settled int64 // the highest token of a grant or a raise
	closing bool
	grants  int
	rounds  int    // of proposals before the last grant
	failed  string // the kind of the violation
	trace   func(format string, args ...any)
}

type modelLink int

const (
	modelFast modelLink = iota
	modelSlow
	modelCut
	modelHeldUp // until the moment heldUp
)

type modelEvent struct {
	at  int64
	seq int
	run func()
}

func (e modelEvent) before(other modelEvent) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// modelEvents is a heap. Package container/heap is slower, and this is most of the work.
type modelEvents []modelEvent

func (es *modelEvents) push(e modelEvent) {
	*es = append(*es, e)
	h := *es
	for i := len(h) - 1; i > 0 && h[i].before(h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (es *modelEvents) pop() modelEvent {
	h := *es
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], modelEvent{}
	h = h[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*es = h
	return first
}

func (w *modelWorld) has(r rule) bool          { return w.without != r }
func (w *modelWorld) quorum() int              { return len(w.nodes)/2 + 1 }
func (w *modelWorld) chance(p float64) bool    { return p > 0 && w.rng.Float64() < p }
func (w *modelWorld) between(a, b int64) int64 { return a + w.rng.Int64N(b-a+1) }

// after runs f later.
func (w *modelWorld) after(d int64, f func()) {
	w.sent++
	w.events.push(modelEvent{w.now + d, w.sent, f})
}

// run handles events until a moment.
func (w *modelWorld) run(until int64) {
	for len(w.events) > 0 && w.events[0].at <= until && w.failed == "" {
		e := w.events.pop()
		w.now, w.last = e.at, e.at
		e.run()
	}
	w.now = max(w.now, until)
}

func (w *modelWorld) violated(kind, format string, args ...any) {
	if w.failed == "" {
		w.failed = kind
		w.log("VIOLATION: %s: %s", kind, fmt.Sprintf(format, args...))
	}
}

func (w *modelWorld) log(format string, args ...any) {
	if w.trace != nil {
		w.trace("%7d  %s", w.now, fmt.Sprintf(format, args...))
	}
}

// delay is how long a message takes.
func (w *modelWorld) delay(c *modelClient, n *modelNode) int64 {
	switch {
	case w.links[c.id][n.id] == modelHeldUp:
		return max(w.heldUp-w.now, 20)
	case !w.closing && w.links[c.id][n.id] == modelSlow:
		return w.between(150, modelLimit/2)
	case w.closing || !w.chance(w.faults.late):
		return w.between(20, 150)
	case w.chance(0.5):
		return w.between(150, modelLimit)
	default:
		return w.between(modelLimit, modelLate)
	}
}

// call sends a request. Its answer is modelFailed after a limit. No answer comes after that.
func (w *modelWorld) call(c *modelClient, n *modelNode, what string, copies float64, ask func() modelAnswer, done func(modelAnswer)) {
	process, answered := c.process, false
	finish := func(a modelAnswer) {
		if !answered && c.process == process {
			answered = true
			done(a)
		}
	}
	replayed := !w.closing && w.chance(copies)
	lost := func() bool {
		return !w.closing && (w.links[c.id][n.id] == modelCut || w.chance(w.faults.lose))
	}
	for again := range 2 {
		if again == 1 && !replayed || lost() {
			continue
		}
		w.after(w.delay(c, n), func() {
			if !n.up {
				return
			}
			a := ask()
			a.replayed = replayed
			if w.trace != nil {
				w.log("client %d node %d: %s: %s", c.id, n.id, what, a)
			}
			if !lost() {
				w.after(w.delay(c, n), func() { finish(a) })
			}
		})
	}
	w.after(modelLimit, func() { finish(modelAnswer{kind: modelFailed}) })
}

func (a modelAnswer) String() string {
	s := []string{"none", "failed", "unable", "yes", "busy", "too low", "cancelled", "not held"}[a.kind]
	if a.owner > 0 {
		s += fmt.Sprintf(" by owner %d", a.owner)
	}
	if a.replayed {
		s += ", replayed"
	}
	return fmt.Sprintf("%s (last %d, clock %d)", s, a.last, a.clock)
}

// used checks a token that a client begins to use.
func (w *modelWorld) used(c *modelClient, token int64, how string) {
	w.log("client %d %s token %d", c.id, how, token)
	if token <= w.highest {
		w.violated("token", "client %d has token %d after %d", c.id, token, w.highest)
	}
	w.highest = max(w.highest, token)
}

// newModelWorld makes a run without faults and clients.
func newModelWorld(seed uint64, without rule, nodes int) *modelWorld {
	w := &modelWorld{without: without, rng: rand.New(rand.NewPCG(seed, 21)), ttl: modelTTL, block: modelBlock}
	if !w.has(ruleBlock) {
		w.block = 20_000
	}
	for i := range nodes {
		n := &modelNode{w: w, id: i, up: true, rate: 1, offset: modelEpoch}
		n.booted = n.clock() - 100*modelTTL
		w.nodes = append(w.nodes, n)
	}
	return w
}

// join adds a client, which begins at a moment.
func (w *modelWorld) join(at int64) *modelClient {
	c := &modelClient{w: w, id: len(w.clients), tries: 12}
	w.clients, w.links = append(w.clients, c), append(w.links, [5]modelLink{})
	w.after(at-w.now, func() { c.begin() })
	return c
}

// afflict chooses the faults of a run by chance.
func (w *modelWorld) afflict(aim func(w *modelWorld, f *modelFaults)) {
	f := &w.faults
	pick := func(of ...float64) float64 { return of[w.rng.IntN(len(of))] }
	w.ttl = []int64{modelTTL, modelTTL / 3}[w.rng.IntN(2)]
	f.pace = []int64{1, 4}[w.rng.IntN(2)]
	f.lose, f.duplicate, f.late = pick(0, 0, 0.02, 0.1), pick(0, 0.05, 0.3), pick(0, 0.05, 0.2)
	f.restarts, f.outages, f.replicas = w.chance(0.4), w.chance(0.3), w.chance(0.2)
	f.flaps, f.mad = 3*w.rng.IntN(2), w.chance(0.1)
	f.crashes, f.calm, f.raises = w.chance(0.4), w.chance(0.2), w.chance(0.5)
	aim(w, f)
	ttl := float64(w.ttl)
	f.skew = int64(pick(0, 300, 4*ttl, 9*ttl))
	if f.far = modelBlock; !f.restarts && w.chance(0.5) {
		f.far = 3 * w.ttl
	}
	if f.restarts { // the tokens that a node loses are below the clocks
		f.skew = int64(pick(0, 300, ttl/3))
	}
	for i, n := range w.nodes {
		n.rate = 1 + pick(0, 0.005, -0.005)
		n.offset += w.between(-f.skew, f.skew)
		if f.mad && i == 0 {
			n.offset += 2 * modelAhead
		}
		n.booted = n.clock() - 100*modelTTL
		w.disturb(n)
	}
	for _, c := range w.clients {
		if f.crashes {
			w.crash(c)
		}
	}
	for range f.flaps {
		w.relink()
	}
}

// disturb lets faults happen to a node until the end of the run.
func (w *modelWorld) disturb(n *modelNode) {
	w.after(w.between(w.ttl/4, w.faults.pace*w.ttl), func() {
		if w.closing {
			return
		}
		kind, longest := w.rng.IntN(5), w.ttl/2
		if w.faults.storm && w.chance(0.7) {
			kind, longest = 2, 300
		}
		switch kind {
		case 0:
			n.save()
		case 1:
			n.offset += w.between(-modelDrift/4, modelDrift/4)
		case 2:
			if w.faults.restarts && n.up {
				n.up = false
				w.log("node %d stops", n.id)
				w.after(w.between(50, longest), func() {
					n.restart(w.chance(0.6))
					w.log("node %d starts: %+v", n.id, n.record)
				})
			}
		case 3:
			if w.faults.outages && n.up {
				n.up = false
				w.log("node %d is cut off", n.id)
				w.after(w.between(200, 2*w.ttl), func() { n.up = true; w.log("node %d is back", n.id) })
			}
		case 4:
			if w.faults.replicas {
				n.replica = true
				w.log("node %d cannot write", n.id)
				w.after(w.between(200, w.ttl), func() { n.replica = false; w.log("node %d can write", n.id) })
			}
		}
		w.disturb(n)
	})
}

// relink makes links slow, cuts them and mends them.
func (w *modelWorld) relink() {
	w.links[w.rng.IntN(len(w.clients))][w.rng.IntN(len(w.nodes))] = modelLink(w.rng.IntN(3))
	w.after(w.between(100, w.ttl), func() {
		if !w.closing {
			w.relink()
		}
	})
}

// crash ends the process of a client now and then, and starts another.
func (w *modelWorld) crash(c *modelClient) {
	w.after(w.between(w.ttl/2, 5*w.ttl), func() {
		if w.closing {
			return
		}
		w.log("client %d crashes", c.id)
		*c = modelClient{w: w, id: c.id, process: c.process + 1, tries: c.tries}
		w.after(w.between(100, w.ttl), func() { c.begin() })
		w.crash(c)
	})
}
