package history

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// sessionState is a session between two steps.
type sessionState struct {
	mark int64 // every lower token is refused
	most int64 // no token from most on is refused
	log  *node // the last entry
	// turns are the turn IDs that are known, one bit for each Save that may have stored it.
	turns string
}

// node is the last entry of a log, and with it the log.
type node struct {
	up    *node
	entry int32
	size  int32
	hash  uint64
}

// chain is the hash of a log with one more entry.
func chain(h uint64, entry int32) uint64 {
	h ^= uint64(entry) + 0x9e3779b97f4a7c15 + h<<6 + h>>2
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

func (n *node) sum() (uint64, int32) {
	if n == nil {
		return 0, 0
	}
	return n.hash, n.size
}

func (n *node) push(entry int32) *node {
	h, size := n.sum()
	return &node{n, entry, size + 1, chain(h, entry)}
}

// replace puts entries in the place of a range, if the log has the range.
func (n *node) replace(from, to int32, with []int32) (*node, bool) {
	var behind []int32
	for ; n != nil && n.entry != to; n = n.up {
		behind = append(behind, n.entry)
	}
	for n != nil && n.entry != from {
		n = n.up
	}
	if n == nil {
		return nil, false
	}
	n = n.up
	for _, e := range with {
		n = n.push(e)
	}
	for _, e := range slices.Backward(behind) {
		n = n.push(e)
	}
	return n, true
}

func (n *node) entries() []int32 {
	var all []int32
	for ; n != nil; n = n.up {
		all = append(all, n.entry)
	}
	slices.Reverse(all)
	return all
}

func (s sessionState) hash() uint64 {
	h, _ := s.log.sum()
	h ^= uint64(s.mark)*0x9e3779b97f4a7c15 ^ uint64(s.most)*0xc2b2ae3d27d4eb4f
	for i := range len(s.turns) {
		h = h*31 + uint64(s.turns[i])
	}
	return h
}

func (s sessionState) equal(t sessionState) bool {
	h1, n1 := s.log.sum()
	h2, n2 := t.log.sum()
	return s.mark == t.mark && s.most == t.most && h1 == h2 && n1 == n2 && s.turns == t.turns
}

func (s sessionState) knows(bit int) bool {
	return bit >= 0 && bit/8 < len(s.turns) && s.turns[bit/8]&(1<<(bit%8)) != 0
}

func (s sessionState) learn(bit int) string {
	b := make([]byte, max(len(s.turns), bit/8+1))
	copy(b, s.turns)
	b[bit/8] |= 1 << (bit % 8)
	return string(b)
}

func (s *session) model(without promise) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return sessionState{} },
		Step: func(state, input, _ any) (bool, any) {
			st := state.(sessionState)
			ok := s.next(&st, input.(*step), without)
			return ok, st
		},
		Equal: func(a, b any) bool { return a.(sessionState).equal(b.(sessionState)) },
		Hash:  func(state any) uint64 { return state.(sessionState).hash() },
	}
}

// next makes a step of the model of a fenced log, and reports whether it may come next.
func (s *session) next(st *sessionState, in *step, without promise) bool {
	switch {
	case in.Outcome == Deleted:
		return in.founded || without&deletions != 0
	case in.Outcome == Stale:
		return in.excused || in.Fence < st.most || without&unfoundedRefusals != 0
	case in.Kind == Load:
		return s.load(st, in, without)
	case in.Outcome == Conflict:
		return in.founded || without&conflicts != 0
	}
	if in.Kind == Save && without&turnsOnce == 0 && st.knows(in.again) { // it stores nothing
		if st.most = max(st.most, in.Fence); in.Fence == 0 { // it may have been shown, or not
			st.most = math.MaxInt64
		}
		return true
	}
	if in.Kind == Save && without&turnsOnce == 0 && st.conflicts(in) {
		return in.Outcome == Unknown
	}
	if in.Fence != 0 && in.Fence < st.mark && without&staleWrites == 0 {
		return in.Outcome == Unknown // the store refuses it, and the answer is lost
	}
	st.raise(in)
	switch in.Kind {
	case Clear:
		st.log = nil
		return true
	case Delete:
		if st.log = nil; without&forgets == 0 {
			st.turns = ""
		}
		return true
	case Replace:
		replaced, ok := st.log.replace(in.seen[0], in.seen[len(in.seen)-1], in.with)
		if ok {
			st.log = replaced
		}
		return ok || in.Outcome == Unknown || without&replaces != 0
	}
	st.log = st.log.push(int32(in.entry.number))
	if in.again >= 0 {
		st.turns = st.learn(in.again)
	}
	return true
}

// conflicts reports whether the turn ID is known with other messages.
func (st *sessionState) conflicts(in *step) bool {
	if in.again < 0 {
		return false
	}
	t := in.entry.turn
	for bit := t.number; bit < t.number+len(t.entries); bit++ {
		if bit != in.again && st.knows(bit) {
			return true
		}
	}
	return false
}

// raise lets the store see the token of an operation.
func (st *sessionState) raise(in *step) {
	switch {
	case in.Fence == 0: // one of its own, above all that were granted
		st.mark, st.most = max(st.mark, in.floor)+1, math.MaxInt64
	case in.Fence >= st.mark:
		st.mark, st.most = in.Fence, in.Fence
	}
}

// load is a Load with an answer. Only the first access of a lease shows the token to the store.
func (s *session) load(st *sessionState, in *step, without promise) bool {
	switch {
	case in.part == reading && in.Fence > st.mark:
		return false // it has not been shown yet
	case in.part != reading && in.first && in.Fence != 0 && in.Fence < st.mark && without&staleLoads == 0:
		return false
	case in.part == showing:
		st.raise(in)
		return true
	}
	const ofContent = refusedWrites | clears | entriesOnce | order | between | replaces | nothingLost | wholeEntries
	if !st.shows(in) && (without&ofContent == 0 || !s.mayShow(st.log.entries(), in, without)) {
		return false
	}
	if in.Fence != 0 && in.Fence >= st.mark {
		st.raise(in)
	}
	return true
}

// shows reports whether a Load of this log returns the entries that a Load has seen: all, or the last ones.
func (st *sessionState) shows(in *step) bool {
	if h, n := st.log.sum(); in.Most == 0 || int(n) <= in.Most {
		return h == in.hash && int(n) == len(in.seen)
	}
	at := st.log
	for _, e := range slices.Backward(in.seen) {
		if at == nil || at.entry != e {
			return false
		}
		at = at.up
	}
	return len(in.seen) > 0
}

// mayShow is shows without some promises.
func (s *session) mayShow(log []int32, in *step, without promise) bool {
	if in.Most == 0 || len(log) <= in.Most {
		return s.resembles(log, in, without)
	}
	for ; len(log) > 0; log = log[1:] {
		if s.resembles(log, in, without) {
			return true
		}
	}
	return false
}

// resembles reports whether a log and the entries that a Load has seen are the same without some promises.
func (s *session) resembles(log []int32, in *step, without promise) bool {
	half := without&between != 0 && s.underWay(in)
	touched := func(e int32) bool {
		return without&replaces != 0 && s.list[e].replaced || half && s.list[e].saves > 0
	}
	log, seen := slices.DeleteFunc(slices.Clone(log), touched), slices.DeleteFunc(slices.Clone(in.seen), touched)
	seen = slices.DeleteFunc(seen, func(e int32) bool {
		known := s.list[e]
		switch {
		case slices.Contains(log, e):
			return false
		case known.saves == 0:
			return without&wholeEntries != 0
		case known.refused:
			return without&refusedWrites != 0
		}
		return without&clears != 0
	})
	if without&entriesOnce != 0 {
		log, seen = once(log), once(seen)
	}
	if without&nothingLost != 0 {
		log = slices.DeleteFunc(log, func(e int32) bool { return !slices.Contains(seen, e) })
	}
	if without&order != 0 {
		slices.Sort(log)
		slices.Sort(seen)
	}
	return slices.Equal(log, seen)
}

// underWay reports whether a Replace, Clear or Delete was under way during a Load.
func (s *session) underWay(in *step) bool {
	return slices.ContainsFunc(s.ops, func(o Op) bool {
		changes := o.Kind == Replace || o.Kind == Clear || o.Kind == Delete
		to, ok := s.until(o)
		return changes && ok && (o.Outcome == OK || o.Outcome == Unknown) && o.Call <= in.Return && to >= in.Call
	})
}

// once is a list without repetitions.
func once(list []int32) []int32 {
	var kept []int32
	for _, e := range list {
		if !slices.Contains(kept, e) {
			kept = append(kept, e)
		}
	}
	return kept
}
