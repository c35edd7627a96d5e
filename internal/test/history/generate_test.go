package history

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"
)

// random draws numbers as a rand.Rand does.
type random struct{ *rapid.T }

func (r random) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(r.T, "n") }

// simulated is a session and its lock as they might run: a legal history, made by doing each
// operation at one moment between its call and its return.
type simulated struct {
	random
	now    int64
	fence  int64 // last granted
	mark   int64
	log    []string
	turns  map[string]string // to entries
	late   []func()          // what is under way, and may take effect any time
	number int
	ops    []Op
	old    []int64 // tokens of leases that are over
}

// legal makes legal histories of one key, with at least so many operations.
func legal(least, most int) *rapid.Generator[[]Op] {
	return rapid.Custom(func(t *rapid.T) []Op {
		s := &simulated{random: random{t}, turns: make(map[string]string)}
		for size := least + s.IntN(most-least+1); len(s.ops) < size; {
			s.tenure()
		}
		return s.ops
	})
}

// moment is when an operation takes effect, and an interval around it. The clocks of others may
// have gone on by its return.
func (s *simulated) moment(o Op) Op {
	s.now += 10
	o.Key, o.Process = "k", fmt.Sprint("p", o.Fence)
	o.Call, o.Return = s.now-int64(s.IntN(12)), s.now+int64(s.IntN(12))
	o.Call = max(0, o.Call)
	return o
}

func (s *simulated) add(o Op) { s.ops = append(s.ops, o) }

// tenure is a lease from its grant to its end, and what is done under it, and besides.
func (s *simulated) tenure() {
	s.fence += 1 + int64(s.IntN(5))
	f := s.fence
	for range s.IntN(6) {
		if s.IntN(4) == 0 {
			s.besides()
		}
		switch s.IntN(12) {
		case 0, 1, 2:
			s.load(f, s.IntN(4))
		case 3, 4, 5, 6, 7:
			s.save(f)
		case 8, 9:
			s.replace(f)
		case 10:
			s.clear(f, Delete)
		default:
			s.clear(f, Clear)
		}
	}
	s.old = append(s.old, f)
	if s.IntN(4) == 0 {
		s.save(0)
	}
}

// besides is what happens meanwhile: something late, an old holder, or somebody who only reads.
func (s *simulated) besides() {
	switch {
	case len(s.late) > 0 && s.IntN(2) == 0:
		i := s.IntN(len(s.late))
		s.now++
		s.late[i]()
		s.late = slices.Delete(s.late, i, i+1)
	case len(s.old) > 0 && s.IntN(2) == 0:
		s.save(s.old[len(s.old)-1-s.IntN(min(3, len(s.old)))])
	default:
		s.load(0, s.IntN(4))
	}
}

func (s *simulated) load(f int64, most int) {
	o := s.moment(Op{Kind: Load, Fence: f, Outcome: OK})
	switch {
	case f == 0:
	case f < s.mark:
		o.Outcome, o.Mark = Stale, s.mark
		s.add(o)
		return
	default:
		s.mark = f
	}
	o.Seen = slices.Clone(s.log)
	if o.Most = most; most > 0 {
		o.Seen = o.Seen[max(0, len(o.Seen)-most):]
	}
	s.add(o)
}

// replace reads, and replaces some exchanges by others.
func (s *simulated) replace(f int64) {
	s.load(f, 0)
	if len(s.log) == 0 {
		return
	}
	from := s.IntN(len(s.log))
	to := from + s.IntN(min(3, len(s.log)-from))
	o := s.moment(Op{Kind: Replace, Fence: f, Outcome: OK, Range: slices.Clone(s.log[from : to+1])})
	for range s.IntN(3) {
		s.number++
		o.With = append(o.With, fmt.Sprint("e", s.number))
	}
	if s.IntN(7) == 0 {
		o.Outcome, o.Return = Unknown, 0
		switch s.IntN(3) {
		case 0:
			s.swap(o)
		case 1:
			s.late = append(s.late, func() { s.swap(o) })
		}
		s.add(o)
		return
	}
	if o.Outcome = s.swap(o); o.Outcome == Stale {
		o.Mark = s.mark
	}
	s.add(o)
}

// swap is the store.
func (s *simulated) swap(o Op) Outcome {
	if o.Fence < s.mark {
		return Stale
	}
	s.mark = o.Fence
	from, to := slices.Index(s.log, o.Range[0]), slices.Index(s.log, o.Range[len(o.Range)-1])
	if from < 0 || to < from {
		return Nothing
	}
	s.log = slices.Concat(s.log[:from], o.With, s.log[to+1:])
	return OK
}

func (s *simulated) save(f int64) {
	s.number++
	o := s.moment(Op{Kind: Save, Fence: f, Entry: fmt.Sprint("e", s.number), Outcome: OK})
	if s.IntN(3) == 0 {
		o.Turn = fmt.Sprint("t", s.number)
		if s.IntN(3) == 0 { // what somebody else has tried
			for i := len(s.ops) - 1; i >= max(0, len(s.ops)-20); i-- {
				if s.ops[i].Turn != "" && s.ops[i].Outcome != Conflict {
					o.Turn, o.Entry = s.ops[i].Turn, s.ops[i].Entry
					break
				}
			}
		}
	}
	if s.IntN(7) == 0 {
		o.Outcome, o.Return = Unknown, 0
		switch s.IntN(3) {
		case 0:
			s.store(o)
		case 1:
			s.late = append(s.late, func() { s.store(o) })
		}
		s.add(o)
		return
	}
	o.Outcome = s.store(o)
	if o.Outcome == Stale {
		o.Mark = s.mark
	}
	s.add(o)
}

// store is the store.
func (s *simulated) store(o Op) Outcome {
	if entry, ok := s.turns[o.Turn]; ok && o.Turn != "" {
		if entry != o.Entry {
			return Conflict
		}
		if o.Fence > s.mark {
			s.mark = o.Fence
		}
		return OK
	}
	f := o.Fence
	if f == 0 {
		s.fence = max(s.fence, s.mark) + 1
		f = s.fence
	}
	if f < s.mark {
		return Stale
	}
	s.mark = f
	s.log = append(s.log, o.Entry)
	if o.Turn != "" {
		s.turns[o.Turn] = o.Entry
	}
	return OK
}

func (s *simulated) clear(f int64, kind Kind) {
	o := s.moment(Op{Kind: kind, Fence: f, Outcome: OK})
	switch {
	case f < s.mark:
		o.Outcome, o.Mark = Stale, s.mark
	default:
		if s.mark, s.log = f, nil; kind == Delete {
			s.turns = make(map[string]string)
		}
	}
	s.add(o)
}
