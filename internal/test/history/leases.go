package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// lease is one grant with the known facts about its end.
type lease struct {
	fence  int64
	before int64 // the next lower token of the key
	grant  Op
	ends   []end
}

// end is what may or must have ended a lease, at some moment from its call to its return.
type end struct {
	op       Op
	from, to int64
	own      bool // it has ended the lease itself: a release that answered ok
}

// leaseStep is the input of a step: the grant of a lease, or one of its ends.
type leaseStep struct {
	*lease
	number int
	end    *end // nil: the grant
}

// leaseState is a key between two steps.
type leaseState struct {
	highest int64 // token granted
	live    int   // number of the lease, 0 for none
}

// CheckLeases checks the leases of every key: [Acquire], [Release], [Lost], [Killed], [Stopped] and [Forgot].
//
// It leaves out acquisitions of unknown outcome. Such a lease may have been granted at any later time, and
// ends by itself. Any order of the others that is right with it is right without it.
func CheckLeases(ops []Op, opts Options) Verdict {
	keys, of, all := byKey(ops, Acquire, Release, Lost, Killed, Stopped, Forgot)
	events := make(map[string][]Op) // by process; a Forgot has none
	for _, o := range all {
		if o.Kind == Forgot {
			o.Process = ""
		}
		events[o.Process] = append(events[o.Process], o)
	}
	var histories []prepared
	for _, key := range keys {
		leases, err := leasesOf(of[key], events)
		if err != nil {
			return Verdict{Malformed: fmt.Errorf("key %s: %w", key, err)}
		}
		histories = append(histories, prepared{key, len(of[key]), func(without promise) (porcupine.Model, []porcupine.Operation) {
			return leaseModel(without), leaseOps(leases, without)
		}})
	}
	return check(histories, opts)
}

// leasesOf finds the leases of one key. events are those that concern all keys, by process.
func leasesOf(ops []Op, events map[string][]Op) ([]*lease, error) {
	type name struct {
		process string
		fence   int64
	}
	var leases []*lease
	of := make(map[name]*lease)
	for _, o := range ops {
		if o.Kind != Acquire || o.Outcome != OK {
			continue
		}
		n := name{o.Process, o.Fence}
		if o.Fence <= 0 || o.Return < o.Call || of[n] != nil {
			return nil, fmt.Errorf("a grant without a token or return, or twice: %s", o)
		}
		of[n] = &lease{fence: o.Fence, grant: o}
		leases = append(leases, of[n])
	}
	for _, o := range ops {
		if o.Kind != Release && o.Kind != Lost {
			continue
		}
		l := of[name{o.Process, o.Fence}]
		if l == nil {
			// The process was killed between the grant and its record, or had no answer: the lease
			// is unknown.
			continue
		}
		l.told(o)
	}
	for _, l := range leases {
		for _, o := range slices.Concat(ops, events[""], events[l.grant.Process]) {
			l.mayEnd(o)
		}
	}
	slices.SortStableFunc(leases, func(a, b *lease) int { return cmp.Compare(a.fence, b.fence) })
	for i := range leases[min(1, len(leases)):] {
		leases[i+1].before = leases[i].fence
		leases[i].endsBefore(leases[i+1].grant)
	}
	return leases, nil
}

// told notes what the holder has noticed of the end of its lease.
func (l *lease) told(o Op) {
	held := max(l.grant.Call, o.Alive)
	e := end{op: o, from: o.Call, to: forever}
	switch {
	case o.Kind == Lost, o.Outcome == Gone:
		e.from, e.to = held, cmp.Or(o.Return, o.Call)
	case o.Outcome == OK:
		e.to, e.own = o.Return, true
		for i, other := range l.ends {
			if other.op.Kind == Release && other.own {
				return // a release that is repeated is answered as the first
			}
			if other.op.Kind == Release && other.to == forever { // one of the two has ended it
				e.from = min(e.from, other.from)
				l.ends = slices.Delete(l.ends, i, i+1)
				break
			}
		}
	}
	l.ends = append(l.ends, e)
}

// mayEnd notes what may end a lease without a word to its holder.
func (l *lease) mayEnd(o Op) {
	switch {
	case o.Kind == Killed || o.Kind == Stopped:
		if o.Process != l.grant.Process || o.Call < l.grant.Call {
			return
		}
		if o.Kind == Stopped && slices.ContainsFunc(l.ends, func(e end) bool { return e.op.Alive > o.Call }) {
			return // it was seen to live on
		}
	case o.Kind != Forgot || o.Return != 0 && o.Return < l.grant.Call:
		return
	}
	may := end{op: o, from: max(o.Call, l.grant.Call), to: forever}
	for i, e := range l.ends {
		switch {
		case e.to < o.Call:
			return
		case e.op.Kind == Killed, e.op.Kind == Stopped, e.op.Kind == Forgot:
			if may.from < e.from { // the earliest says it all
				l.ends[i] = may
			}
			return
		}
	}
	l.ends = append(l.ends, may)
}

// endsBefore bounds the possible ends of a lease by the next grant, and leaves out later ones. Each end that
// stays open is one more candidate at every step.
func (l *lease) endsBefore(next Op) {
	l.ends = slices.DeleteFunc(l.ends, func(e end) bool { return e.to == forever && e.from > next.Return })
	for i := range l.ends {
		if e := &l.ends[i]; e.to == forever {
			e.to = next.Return
		}
	}
}

func leaseOps(leases []*lease, without promise) []porcupine.Operation {
	var ops []porcupine.Operation
	for i, l := range leases {
		ops = append(ops, porcupine.Operation{Input: leaseStep{l, i + 1, nil}, Call: l.grant.Call, Return: l.grant.Return, Metadata: l.grant})
		for j := range l.ends {
			e := &l.ends[j]
			from, to := e.from, e.to
			if without&notice != 0 && e.op.Kind == Lost {
				from, to = l.grant.Call, forever
			}
			ops = append(ops, porcupine.Operation{Input: leaseStep{l, i + 1, e}, Call: from, Return: to, Metadata: e.op})
		}
	}
	return ops
}

func leaseModel(without promise) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return leaseState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, in := state.(leaseState), input.(leaseStep)
			ok := s.step(in, without)
			return ok, s
		},
		Hash: func(state any) uint64 { s := state.(leaseState); return uint64(s.highest)*31 + uint64(s.live) },
	}
}

// step is the model of a lease with expiry. It reports whether the step may come next.
func (s *leaseState) step(in leaseStep, without promise) bool {
	if in.end == nil {
		if without&exclusion == 0 && s.live != 0 {
			return false
		}
		// Rising tokens imply that the lease before was granted. The comparison leaves a single order to try.
		if without&risingFences == 0 && (in.fence <= s.highest || s.highest != in.before) {
			return false
		}
		s.highest, s.live = max(s.highest, in.fence), in.number
		return true
	}
	switch {
	case s.live == in.number:
		s.live = 0
	case s.highest < in.fence:
		return false // not granted yet
	case in.end.own && without&(ownRelease|exclusion) == 0:
		return false // it was over already
	}
	return true
}
