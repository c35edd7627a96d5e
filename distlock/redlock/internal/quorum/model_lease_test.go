package quorum_test

import "fmt"

// granted makes the attempt a lease.
func (a *modelAttempt) granted() {
	c, w := a.c, a.c.w
	a.over = true
	w.grants++
	w.rounds = a.rounds
	c.lease, c.ends = a, a.start+c.ttl-modelDrift
	if !w.has(ruleBefore) {
		c.ends = w.now + c.ttl - modelDrift
	}
	if !c.holds() { // the answers took too long
		c.end("too late")
		return
	}
	for _, other := range w.clients {
		if other != c && other.holds() {
			w.violated("two holders", "client %d holds the name beside client %d", c.id, other.id)
		}
	}
	w.used(c, a.token, "is granted")
	w.settled = max(w.settled, a.token)
	c.after(500, a.spread)
	c.after(w.between(10, c.ttl/4), c.work)
}

// holds says whether the client trusts its lease.
func (c *modelClient) holds() bool { return c.lease != nil && c.w.now < c.ends }

// end releases the lease.
func (c *modelClient) end(why string) {
	c.w.log("client %d ends its lease: %s", c.id, why)
	if c.steady {
		c.w.violated("lease lost", "%s", why)
	}
	a := c.lease
	c.lease = nil
	a.undo()
	c.again()
}

// work is what a holder does at one moment.
func (c *modelClient) work() {
	a, w := c.lease, c.w
	switch {
	case a == nil || c.passive:
		return
	case !c.holds():
		c.end("its deadline has passed")
		return
	case c.steady:
		a.extend(c.ttl)
	case w.closing, w.chance(0.15):
		c.end("released")
		return
	case w.chance(0.15) && a.used < a.end: // a local handoff
		a.used++
		w.used(c, a.used, "hands off under")
	case w.faults.raises && w.chance(0.2):
		a.raise(max(a.proposed+1, c.time())+w.between(0, w.faults.far), 0)
	default:
		a.extend(c.ttl)
	}
	c.after(w.between(100, c.ttl/3), func() {
		if c.lease == a {
			c.work()
		}
	})
}

// modelTally counts the answers to an Extend.
type modelTally struct {
	yes, not, answered int
	decided            bool
}

// extend prolongs the grant on all nodes.
func (a *modelAttempt) extend(ttl int64) {
	c, w := a.c, a.c.w
	sent := w.now
	tally := &modelTally{}
	for i := range a.parts {
		n := w.nodes[i]
		text := ""
		if w.trace != nil {
			text = fmt.Sprintf("extend owner %d by %d", a.owner, ttl)
		}
		w.call(c, n, text, w.faults.duplicate, func() modelAnswer { return n.extend(a.owner, ttl) }, func(answer modelAnswer) {
			c.note(n, answer)
			if c.lease != a {
				return
			}
			tally.answered++
			switch {
			case answer.kind == modelNot:
				tally.not++
				a.retake(i)
			case answer.kind == modelYes:
				if !c.isYoung(answer) || !w.has(ruleYoungHeld) {
					tally.yes++
				}
			}
			a.extended(tally, sent, ttl)
		})
	}
}

// extended decides an Extend.
func (a *modelAttempt) extended(t *modelTally, sent, ttl int64) {
	c, w := a.c, a.c.w
	switch {
	case t.yes >= w.quorum():
		if !t.decided && c.holds() {
			c.ends = max(c.ends, sent+ttl-modelDrift)
		}
		t.decided = true
	case t.not > len(w.nodes)-w.quorum() && !t.decided:
		t.decided = true
		c.checkLoss()
		c.end("a majority does not hold it")
	}
}

// checkLoss reports the loss of a lease that a quorum of the servers has held all the time.
func (c *modelClient) checkLoss() {
	held := 0
	for _, n := range c.w.nodes {
		if r, _ := n.look(); r.held && r.owner == c.lease.owner {
			held++
		}
	}
	if held >= c.w.quorum() && !c.w.faults.restarts && !c.lease.retaken {
		c.w.violated("lease lost", "client %d, which %d nodes hold", c.id, held)
	}
}

// spread asks the nodes that have not accepted the grant again.
func (a *modelAttempt) spread() {
	for i, p := range a.parts {
		if p.accepted < a.token && a.c.lease == a {
			a.retake(i)
		}
	}
}

// retake asks a node that does not hold the name to accept it, with a token above all earlier ones.
func (a *modelAttempt) retake(i int) {
	c, p := a.c, &a.parts[i]
	if p.retaking || !c.w.has(ruleRetake) {
		return
	}
	p.retaking, a.retaken = true, true
	token := a.token
	if c.w.has(ruleRetakeAbove) {
		token = max(a.proposed+1, c.time())
	}
	c.known, a.proposed = max(c.known, token), max(a.proposed, token)
	a.ask(i, "retake", token, func(modelAnswer) { p.retaking = false })
}

// raise asks all nodes for a higher token.
func (a *modelAttempt) raise(token int64, tries int) {
	c, w := a.c, a.c.w
	if c.lease != a || tries > 5 {
		return
	}
	c.known, a.proposed = max(c.known, token), max(a.proposed, token)
	end := token + w.block - 1
	yes, not, answered, higher := 0, 0, 0, int64(0)
	for _, n := range w.nodes {
		text := ""
		if w.trace != nil {
			text = fmt.Sprintf("raise owner %d to token %d", a.owner, token)
		}
		w.call(c, n, text, w.faults.duplicate, func() modelAnswer { return n.raise(a.owner, token, end, c.ttl) }, func(answer modelAnswer) {
			c.note(n, answer)
			if c.lease != a || !c.holds() {
				return
			}
			answered++
			switch {
			case answer.kind == modelYes && answer.token == token:
				yes++
			case answer.kind == modelYes:
				higher = max(higher, answer.last+1)
			case answer.kind == modelNot:
				not++
			}
			switch {
			case yes == w.quorum() && a.token < token:
				yes++
				a.token, a.end, a.used = token, end, token
				w.used(c, token, "is raised to")
				w.settled = max(w.settled, token)
			case not == len(w.nodes)-w.quorum()+1:
				c.checkLoss()
				c.end("a majority does not hold it")
			case answered == len(w.nodes) && higher > 0 && yes < w.quorum():
				a.raise(max(higher, a.proposed+1), tries+1)
			}
		})
	}
}
