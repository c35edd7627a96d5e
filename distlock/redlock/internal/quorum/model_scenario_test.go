package quorum_test

// A modelScenario makes one run.
type modelScenario func(seed uint64, without rule, trace func(string, ...any)) *modelWorld

// modelExplore has faults by chance, most of them of a kind. Then the faults end, and a client asks
// for the free name.
func modelExplore(aim func(*modelWorld, *modelFaults)) modelScenario {
	return func(seed uint64, without rule, trace func(string, ...any)) *modelWorld {
		nodes := 3
		if seed%8 == 7 {
			nodes = 5
		}
		w := newModelWorld(seed, without, nodes)
		w.trace = trace
		for range 2 + seed%2 {
			w.join(w.between(0, 500))
		}
		w.afflict(aim)
		w.run(modelLength)
		w.closing = true
		for _, n := range w.nodes {
			n.replica = false
		}
		w.run(1 << 40) // all late messages arrive
		if w.failed == "" {
			w.probe()
		}
		return w
	}
}

// probe lets one client ask for the free name.
func (w *modelWorld) probe() {
	if w.now = w.last; w.faults.crashes || w.faults.restarts { // grants have to end, and nodes to count
		w.now += 3 * w.ttl
	}
	dead := w.rng.IntN(2 * len(w.nodes))
	if w.faults.mad {
		dead = 0
	}
	if dead < len(w.nodes) {
		w.nodes[dead].up = false
	}
	c := w.join(w.now)
	c.probes = true
	if old := w.clients[0]; w.chance(0.7) {
		c.known, c.clocks, c.seen = old.known, old.clocks, old.seen
	}
	grants := w.grants
	w.log("client %d asks once, node %d is dead", c.id, dead)
	w.run(w.now + w.ttl)
	if w.grants == grants {
		w.violated("no grant", "the free name was not granted")
	}
}

// modelFlaps has links that come and go, and copies of requests that arrive late.
func modelFlaps(w *modelWorld, f *modelFaults) {
	w.ttl = modelTTL
	*f = modelFaults{late: 0.2, duplicate: 0.3, lose: f.lose, flaps: 3 * w.rng.IntN(4), raises: f.raises, pace: 4}
}

// modelStorm has many restarts.
func modelStorm(w *modelWorld, f *modelFaults) {
	*f = modelFaults{late: 0.2, duplicate: f.duplicate, lose: 0.02, flaps: f.flaps, restarts: true, storm: w.chance(0.7),
		crashes: f.crashes, raises: f.raises, pace: 1}
}

// modelRaces lets many clients ask once at the same time.
func modelRaces(nodes, clients int, spoil func(w *modelWorld)) modelScenario {
	return func(seed uint64, without rule, trace func(string, ...any)) *modelWorld {
		w := newModelWorld(seed, without, nodes)
		w.trace = trace
		w.now = modelTTL
		for range clients {
			c := w.join(w.now + w.between(0, 50))
			for i, n := range w.nodes {
				c.clocks[i], c.seen[i] = n.offset, true
			}
			c.tries = 1
		}
		spoil(w)
		w.run(w.now + modelTTL/2)
		if w.grants == 0 {
			w.violated("no winner", "none of %d clients", clients)
		}
		return w
	}
}

// modelOrphan makes node 0 keep the grant of a client that is dead.
func modelOrphan(w *modelWorld) {
	n := w.nodes[0]
	w.now -= 2 * modelRace
	n.acquire(-1, n.clock(), n.clock()+modelBlock-1, 10*modelTTL)
	w.now += 2 * modelRace
}

// modelKeeps lets one client hold the name while two nodes fail one after the other.
func modelKeeps(seed uint64, without rule, trace func(string, ...any)) *modelWorld {
	w := newModelWorld(seed, without, 3)
	w.trace = trace
	first, second := w.rng.IntN(3), w.rng.IntN(2)+1
	holder := w.join(0)
	holder.steady = true
	other := w.join(modelTTL / 2)
	other.tries = 1 << 30
	cut := func(i int, way modelLink) { w.links[holder.id][i] = way }
	late := w.between(0, 1) * modelTTL / 4 // before the grant, or after it
	w.after(late, func() { cut(first, modelCut) })
	w.after(2*modelTTL, func() { cut(first, modelFast) })
	w.after(3*modelTTL, func() { w.nodes[(first+second)%3].up = false })
	w.run(6 * modelTTL)
	return w
}

// modelTurns lets two clients hold the name by turns.
func modelTurns(seed uint64, without rule, trace func(string, ...any)) *modelWorld {
	w := newModelWorld(seed, without, 3)
	w.trace = trace
	w.join(w.now).tries = 1
	w.join(w.now).tries = 1
	w.run(modelTTL)
	for _, c := range w.clients {
		if c.lease != nil {
			c.end("released")
		}
	}
	w.run(2 * modelTTL)
	for range 4 {
		grants, from := w.grants, w.now
		w.clients[grants%2].begin()
		w.run(w.now + 500)
		if w.grants == grants || w.rounds > 1 {
			w.violated("slow", "%d grants with %d proposals from %d", w.grants-grants, w.rounds, from)
		}
		if c := w.clients[grants%2]; c.lease != nil {
			c.end("released")
		}
		w.run(w.now + 500)
	}
	return w
}

// modelTwoRestarts restarts two of three nodes within one TTL. The second one had just accepted
// client x, and then accepts the holder h again. The first one counts for x as soon as it is not
// young.
func modelTwoRestarts(seed uint64, without rule, trace func(string, ...any)) *modelWorld {
	w := newModelWorld(seed, without, 3)
	w.trace = trace
	h, x := w.join(0), w.join(8700)
	h.passive, x.passive, x.tries, h.ttl, x.ttl = true, true, 1, w.ttl, w.ttl
	for i, n := range w.nodes {
		x.clocks[i], x.seen[i] = n.offset, true
	}
	w.links[h.id] = [5]modelLink{modelCut, modelFast, modelFast}
	w.links[x.id], w.heldUp = [5]modelLink{modelFast, modelHeldUp, modelFast}, modelTTL+420
	w.after(400, func() { w.nodes[1].restart(true); w.links[h.id][1] = modelCut })
	w.after(8900, func() { w.nodes[0].restart(true); w.links[h.id][0] = modelFast })
	for _, at := range []int64{9000, 9400} {
		w.after(at, func() {
			if h.lease != nil {
				h.lease.extend(w.ttl)
			}
		})
	}
	w.after(w.heldUp, func() { w.links[x.id][1] = modelFast })
	w.run(2 * modelTTL)
	return w
}
