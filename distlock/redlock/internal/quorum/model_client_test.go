package quorum_test

import (
	"fmt"
	"slices"
)

// modelClient is one process of the model with its driver and its Locker.
type modelClient struct {
	w       *modelWorld
	id      int
	process int // counts the crashes
	ttl     int64
	known   int64    // the highest token proposed
	clocks  [5]int64 // of the nodes, less the time of the model
	seen    [5]bool
	ahead   int64 // of the client's own clock
	lease   *modelAttempt
	ends    int64 // when the lease ends
	probes  bool  // it asks once for a free name
	steady  bool  // it holds the name, and renews
	passive bool  // it does nothing by itself under a lease
	tries   int   // the attempts of an acquisition
}

// modelAttempt is one try of an acquisition, and the lease that it may become.
type modelAttempt struct {
	c          *modelClient
	owner      int
	start      int64 // of the first proposal
	settled    int64 // at start
	token, end int64
	used       int64 // the last token of the block that was used
	proposed   int64 // the highest token for this owner
	parts      []modelPart
	rounds     int // of proposals
	asks       int // after a split vote
	waited     bool
	over       bool
	retaken    bool // some node, perhaps since its answer
}

// modelPart is what an attempt knows of one node.
type modelPart struct {
	modelAnswer       // to the present proposal
	young       bool  // at this answer
	accepted    int64 // the highest token that it accepted
	open        int   // Acquires without an answer
	doubt       bool  // a copy of an Acquire may still arrive
	retaking    bool
	release     bool // as soon as no Acquire is open
}

// after runs f later, unless the process crashes before.
func (c *modelClient) after(d int64, f func()) {
	process := c.process
	c.w.after(d, func() {
		if c.process == process {
			f()
		}
	})
}

func (c *modelClient) note(n *modelNode, a modelAnswer) {
	if a.kind > modelFailed {
		c.clocks[n.id], c.seen[n.id] = a.clock-c.w.now, true
	}
}

// time is the quorum-th highest clock of the nodes, or 0.
func (c *modelClient) time() int64 {
	if !c.w.has(ruleNodeClock) {
		return c.w.now + modelEpoch + c.ahead
	}
	var known []int64
	for i, seen := range c.seen {
		if seen {
			known = append(known, c.clocks[i]+c.w.now)
		}
	}
	if len(known) < c.w.quorum() {
		return 0
	}
	slices.Sort(known)
	if !c.w.has(ruleMedianClock) {
		return known[len(known)-1]
	}
	return known[len(known)-c.w.quorum()]
}

func (c *modelClient) isYoung(a modelAnswer) bool {
	if !c.w.has(ruleLargestTTL) {
		return a.up < c.ttl
	}
	return a.up < c.w.ttl
}

// begin starts an acquisition.
func (c *modelClient) begin() {
	if c.ttl == 0 {
		c.ttl = c.w.ttl
		if !c.steady && c.w.chance(0.25) {
			c.ttl = max(c.w.ttl/4, modelTTL/4)
		}
		c.ahead = c.w.between(-6, 6) * c.w.ttl
	}
	if !c.w.closing || c.probes {
		c.w.owners++
		c.try(1, c.w.owners)
	}
}

// again starts the next acquisition after a while.
func (c *modelClient) again() {
	d := c.w.between(50, c.w.ttl/4)
	if c.w.faults.calm && c.w.chance(0.3) {
		d = c.w.between(c.w.ttl, 3*modelKeep/2)
	}
	if !c.probes && c.tries > 1 {
		c.after(d, c.begin)
	}
}

// try makes attempt number n of an acquisition.
func (c *modelClient) try(n, acquisition int) {
	w := c.w
	a := &modelAttempt{c: c, owner: acquisition, start: w.now, settled: w.settled, parts: make([]modelPart, len(w.nodes))}
	if n > 1 && w.has(ruleNodeOwner) {
		w.owners++
		a.owner = w.owners
	}
	fails := func() {
		pause := w.between(500, 3000)
		switch {
		case c.probes:
			w.violated("no grant", "client %d asked once for a free name", c.id)
		case n < c.tries && !w.closing:
			c.after(pause, func() { c.try(n+1, acquisition) })
		default:
			c.again()
		}
	}
	a.propose(max(c.known+1, c.time()), false, fails)
}

// propose asks all nodes to accept a token, or only those that have refused.
func (a *modelAttempt) propose(token int64, refused bool, fails func()) {
	w := a.c.w
	if token != a.token {
		a.rounds++
		a.waited = false
	}
	a.token, a.end, a.used = token, token+w.block-1, token
	a.c.known, a.proposed = max(a.c.known, token), token
	for i := range a.parts {
		p := &a.parts[i]
		if refused && p.kind == modelYes {
			continue
		}
		p.modelAnswer = modelAnswer{}
		if p.accepted > 0 && p.accepted < token && !w.has(ruleRaiseAll) {
			continue
		}
		a.ask(i, "acquire", token, func(answer modelAnswer) {
			if a.token == token && !a.over {
				p.modelAnswer, p.young = answer, a.c.isYoung(answer)
				a.decide(fails)
			}
		})
	}
	a.c.after(modelGrace, func() {
		if a.token == token && !a.over {
			a.waited = true
			a.decide(fails)
		}
	})
}

// ask sends an Acquire to a node.
func (a *modelAttempt) ask(i int, what string, token int64, done func(modelAnswer)) {
	c, p, n := a.c, &a.parts[i], a.c.w.nodes[i]
	if p.release && c.w.has(ruleOvertake) {
		return
	}
	text := ""
	if c.w.trace != nil {
		text = fmt.Sprintf("%s owner %d token %d", what, a.owner, token)
	}
	p.open++
	end := token + c.w.block - 1
	c.w.call(c, n, text, c.w.faults.duplicate, func() modelAnswer { return n.acquire(a.owner, token, end, c.ttl) },
		func(answer modelAnswer) {
			p.open--
			p.doubt = p.doubt || answer.kind == modelFailed || answer.replayed && c.w.has(ruleReplayed)
			if answer.kind == modelYes {
				p.accepted = max(p.accepted, token)
			}
			c.note(n, answer)
			done(answer)
			if p.release && p.open == 0 && c.w.has(ruleOvertake) && (p.accepted > 0 || p.doubt) {
				a.release(i)
			}
		})
}

// decide counts the answers. It returns while they leave the end open.
func (a *modelAttempt) decide(fails func()) {
	c, w := a.c, a.c.w
	votes := map[int]int{}
	var yes, low, none, best, holder int
	lowest := modelNone // the answer of the lowest node in the race
	for _, p := range a.parts {
		kind := p.kind
		if p.accepted > 0 && !w.has(ruleOneToken) {
			kind = modelYes
		}
		switch kind {
		case modelYes:
			if !p.young || !w.has(ruleYoung) {
				yes++
			}
		case modelLow:
			low++
		case modelNone:
			none++
		case modelBusy:
			if votes[p.owner]++; votes[p.owner] > best {
				best, holder = votes[p.owner], p.owner
			}
		}
		old := kind == modelBusy && p.age > modelRace && w.has(ruleRace)
		if kind > modelUnable && lowest == modelNone && !old {
			lowest = kind
		}
	}
	switch {
	case yes >= w.quorum():
		a.granted()
		return
	case low > 0 && yes+low+none >= w.quorum() && (yes+none < w.quorum() || a.waited && yes+low >= w.quorum()) &&
		a.rounds < 20 && (c.time() > 0 || !w.has(ruleQuorumClock)): // a higher token may be accepted
		highest := c.time()
		for _, p := range a.parts {
			highest = max(highest, p.last+1)
		}
		a.propose(max(highest, a.token+1), false, fails)
		return
	case none > 0 && !a.waited && best < w.quorum() && w.has(ruleLower), yes+low+none >= w.quorum() && none > 0 && best == 0:
		return // further answers can decide it, or show that this attempt has the lowest node
	}
	if best >= w.quorum() {
		a.shown(holder)
	}
	split := best < w.quorum() && (w.has(ruleHasQuorum) || best+none < w.quorum())
	if w.has(ruleTie) && split && lowest == modelYes && a.asks < 10 && w.now-a.start < c.ttl/2 && !w.closing {
		a.asks++
		token := a.token
		c.after(w.between(100, 300), func() {
			if !a.over && a.token == token {
				a.propose(token, true, fails)
			}
		})
		return
	}
	a.undo()
	fails()
}

// shown checks the token that a busy reply shows of the holder. If a quorum of nodes lost its data,
// it may show a losing proposal that came while they were young: a limit of the protocol.
func (a *modelAttempt) shown(holder int) {
	votes, shown, lost := 0, int64(0), 0
	for _, p := range a.parts {
		if p.kind == modelBusy && p.owner == holder && !(p.young && a.c.w.has(ruleShownYoung)) {
			votes++
			if p.up-p.age < a.c.w.ttl && !p.young {
				lost++
			}
			if shown = max(shown, p.token); !a.c.w.has(ruleShown) {
				shown = p.modelAnswer.token
			}
		}
	}
	if lost >= a.c.w.quorum() {
		return
	}
	if votes >= a.c.w.quorum() && shown < a.settled {
		a.c.w.violated("shown", "the holder has token %d, after an answer with %d", shown, a.settled)
	}
}

// undo ends an attempt, or a lease, on all nodes that may hold the name for it.
func (a *modelAttempt) undo() {
	a.over = true
	for i := range a.parts {
		if p := &a.parts[i]; !p.release && (p.accepted > 0 || p.open > 0 || p.doubt) {
			if p.release = true; p.open == 0 || !a.c.w.has(ruleOvertake) {
				a.release(i)
			}
		}
	}
}

func (a *modelAttempt) release(i int) {
	tombstone := a.parts[i].doubt && a.c.w.has(ruleTombstone)
	a.c.release(i, a.owner, tombstone, a.c.w.now+modelTombstone)
}

// release sends a Release until it is answered.
func (c *modelClient) release(i, owner int, tombstone bool, until int64) {
	w, n := c.w, c.w.nodes[i]
	text := ""
	if w.trace != nil {
		text = fmt.Sprintf("release owner %d, tombstone %v", owner, tombstone)
	}
	w.call(c, n, text, w.faults.duplicate, func() modelAnswer { return n.release(owner, tombstone) }, func(a modelAnswer) {
		if a.kind <= modelUnable && w.now < until {
			c.after(w.between(500, 2000), func() { c.release(i, owner, tombstone, until) })
		}
	})
}
