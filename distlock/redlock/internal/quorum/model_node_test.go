package quorum_test

import "maps"

// modelNode is one server of the model: one name, and a clock of its own.
type modelNode struct {
	w       *modelWorld
	id      int
	up      bool
	replica bool    // a stale copy answers, which cannot write
	offset  int64   // of the clock
	rate    float64 // of the clock
	booted  int64   // by the clock
	record  modelRecord
	saved   modelRecord // a snapshot
}

// modelRecord is what a node stores.
type modelRecord struct {
	held       bool
	owner      int   // also after the end of the grant
	token, end int64 // the block of the grant
	expires    int64
	since      int64 // of the grant
	last       int64 // the highest token ever reserved
	before     int64 // last before the grant
	released   int   // the last owner that was released
	tombstones map[int]int64
}

type modelKind int

const (
	modelNone   modelKind = iota // no answer yet
	modelFailed                  // the outcome is unknown
	modelUnable                  // a node that cannot write: nothing was done
	modelYes                     // accepted, held, released
	modelBusy
	modelLow
	modelCancelled
	modelNot // not held
)

// modelAnswer is the answer to one request.
type modelAnswer struct {
	kind        modelKind
	owner       int   // of a busy name
	token       int64 // of a busy name or a raise
	age         int64 // of the grant
	last, clock int64
	up          int64 // for how long the node is up
	replayed    bool  // a copy may still arrive
}

func (n *modelNode) clock() int64 { return int64(float64(n.w.now)*n.rate) + n.offset }

// look removes what has ended.
func (n *modelNode) look() (*modelRecord, int64) {
	r, now := &n.record, n.clock()
	r.held = r.held && now < r.expires
	if !r.held && r.last < now-modelKeep {
		*r = modelRecord{tombstones: r.tombstones}
	}
	return r, now
}

// ask handles a request, unless a stale copy answers it.
func (n *modelNode) ask(handle func(r *modelRecord, now int64) modelAnswer) modelAnswer {
	r, now := n.look()
	a := modelAnswer{kind: modelUnable}
	if !n.replica {
		a = handle(r, now)
	} else if !n.w.has(ruleWritable) {
		a.kind = modelNot
	}
	a.last, a.clock, a.up = r.last, now, now-n.booted
	return a
}

func (n *modelNode) acquire(owner int, token, end, ttl int64) modelAnswer {
	return n.ask(func(r *modelRecord, now int64) modelAnswer {
		w, mine := n.w, r.owner == owner
		again := mine && r.held && r.token == token && r.end == end
		switch {
		case r.released == owner, r.tombstones[owner] > now:
			return modelAnswer{kind: modelCancelled}
		case r.held && !mine:
			if r.token == token && !w.has(ruleOwner) {
				return modelAnswer{kind: modelYes}
			}
			return modelAnswer{kind: modelBusy, owner: r.owner, token: r.token, age: now - r.since}
		case token > now+modelAhead:
			return modelAnswer{kind: modelUnable}
		case again:
		case token <= r.last && w.has(ruleAbove), token <= now-modelKeep && w.has(ruleKeep):
			return modelAnswer{kind: modelLow}
		}
		before := r.last
		if r.held {
			before = r.before
		}
		if again {
			r.expires = max(r.expires, now+ttl)
		} else {
			r.expires, r.since = now+ttl, now
		}
		r.held, r.owner, r.token, r.end, r.before = true, owner, token, end, before
		if r.last = max(r.last, end); !w.has(ruleEnd) {
			r.last = max(before, token)
		}
		return modelAnswer{kind: modelYes}
	})
}

func (n *modelNode) extend(owner int, ttl int64) modelAnswer {
	return n.ask(func(r *modelRecord, now int64) modelAnswer {
		if !r.held || r.owner != owner {
			return modelAnswer{kind: modelNot}
		}
		r.expires = max(r.expires, now+ttl)
		return modelAnswer{kind: modelYes}
	})
}

func (n *modelNode) raise(owner int, token, end, ttl int64) modelAnswer {
	return n.ask(func(r *modelRecord, now int64) modelAnswer {
		switch {
		case !r.held && token > r.last && !n.w.has(ruleNoGrant):
			*r = modelRecord{held: true, owner: owner, token: token, end: end, last: end, before: r.last, since: now,
				expires: now + ttl, tombstones: r.tombstones}
		case !r.held || r.owner != owner:
			return modelAnswer{kind: modelNot}
		case token > r.last:
			r.token, r.end, r.last = token, end, end
		}
		return modelAnswer{kind: modelYes, token: r.token}
	})
}

func (n *modelNode) release(owner int, tombstone bool) modelAnswer {
	return n.ask(func(r *modelRecord, now int64) modelAnswer {
		if tombstone {
			if r.tombstones == nil {
				r.tombstones = map[int]int64{}
			}
			r.tombstones[owner] = now + modelTombstone
		}
		if !r.held || r.owner != owner {
			return modelAnswer{kind: modelNot}
		}
		r.held, r.released = false, owner
		if !n.w.has(ruleLast) {
			r.last = r.before
		}
		return modelAnswer{kind: modelYes}
	})
}

// save keeps a snapshot.
func (n *modelNode) save() {
	n.saved = n.record
	n.saved.tombstones = maps.Clone(n.record.tombstones)
}

// restart starts the server anew, with the snapshot or empty.
func (n *modelNode) restart(empty bool) {
	if n.record = (modelRecord{}); !empty {
		n.record = n.saved
		n.record.tombstones = maps.Clone(n.saved.tombstones)
	}
	n.up, n.booted = true, n.clock()
}
