package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// session is the history of one session.
type session struct {
	ops     []Op
	entries map[string]*saved
	list    []*saved // by number
	turns   map[string]*turn
	forgets bool // there is a Delete
	steps   []porcupine.Operation
}

// saved is an entry with the known facts about it.
type saved struct {
	number   int
	turn     *turn
	saves    int   // that may have stored it
	refused  bool  // all Saves of it were
	replaced bool  // a Replace removes or stores it
	stored   int64 // by when it is known to have been stored, at least once
	last     int64 // by when it is known to have been stored, for the last time
}

// turn is a turn ID that several Saves have used.
type turn struct {
	number  int
	entries []*saved
	ops     int
}

// step is the input of a step of a session's model.
type step struct {
	Op
	entry   *saved
	seen    []int32 // entries by number, of a Replace its range
	with    []int32 // of a Replace
	hash    uint64  // of seen
	first   bool    // surely the first access under its lease
	excused bool    // an operation that was under way, or was made outside of a turn, explains a refusal
	founded bool    // a Save with other messages explains a conflict, or a Delete a refusal
	floor   int64   // of a write outside a turn: the highest token that was granted before
	part    part
	again   int // bit of the turn ID; -1 if only one Save has it
}

// part is the part of a Load that a step is. The first Load under a lease shows its token, then
// reads. Other operations may come between the two.
type part int

const (
	whole part = iota
	showing
	reading
)

func newSession(ops []Op) (*session, error) {
	ops = slices.SortedStableFunc(slices.Values(ops), func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	s := &session{ops: ops, entries: make(map[string]*saved), turns: make(map[string]*turn)}
	for _, o := range ops {
		if err := s.collect(o); err != nil {
			return nil, err
		}
	}
	bits := 0
	for _, t := range s.turns {
		t.number = -1
		if t.ops > 1 {
			t.number = bits
			bits += len(t.entries)
		}
	}
	leases := s.leases()
	for _, o := range ops {
		to, ok := s.until(o)
		if !ok {
			continue
		}
		in := s.step(o, leases)
		if in.first && o.Fence != 0 && o.Outcome == OK && s.interrupted(o) {
			show := *in
			show.part, in.part = showing, reading
			s.steps = append(s.steps, porcupine.Operation{Input: &show, Call: o.Call, Return: to, Metadata: o})
		}
		s.steps = append(s.steps, porcupine.Operation{Input: in, Call: o.Call, Return: to, Metadata: o})
	}
	return s, nil
}

// collect learns of the entries and turn IDs.
func (s *session) collect(o Op) error {
	switch {
	case o.Outcome != Unknown && o.Return < o.Call:
		return fmt.Errorf("it has an outcome and no return: %s", o)
	case o.Kind == Save:
		if o.Entry == "" {
			return fmt.Errorf("it does not say what it saves: %s", o)
		}
		e := s.entry(o.Entry)
		if e.turn == nil && o.Turn != "" && e.saves > 0 || e.turn != nil && s.turns[o.Turn] != e.turn || o.Turn == "" && e.saves > 0 {
			return fmt.Errorf("it saves what another Save has saved under another turn ID, or without one: %s", o)
		}
		e.written(o)
		if o.Turn == "" {
			break
		}
		t := s.turns[o.Turn]
		if t == nil {
			t = &turn{}
			s.turns[o.Turn] = t
		}
		t.ops++
		if e.turn == nil {
			e.turn = t
			t.entries = append(t.entries, e)
		}
	case o.Kind == Replace:
		if len(o.Range) == 0 {
			return fmt.Errorf("it does not say what it replaces: %s", o)
		}
		for _, name := range o.Range {
			s.entry(name).replaced = true
		}
		for _, name := range o.With {
			e := s.entry(name)
			if e.saves > 0 {
				return fmt.Errorf("it stores what another operation has stored: %s", o)
			}
			e.written(o)
			e.replaced = true
		}
	case o.Kind == Delete:
		s.forgets = true
	case o.Kind == Load && o.Outcome == OK:
		for _, name := range o.Seen {
			s.entry(name).known(o.Return)
		}
	}
	return nil
}

// written takes note of an operation that stores the entry, or is refused.
func (e *saved) written(o Op) {
	if e.saves++; e.saves == 1 {
		e.refused = true
	}
	e.refused = e.refused && o.Outcome != OK && o.Outcome != Unknown
	if o.Outcome == OK {
		e.known(o.Return)
	}
}

// known notes that the entry was stored by some time.
func (e *saved) known(by int64) {
	e.stored, e.last = min(e.stored, by), max(e.last, by)
}

func (s *session) entry(name string) *saved {
	e := s.entries[name]
	if e == nil {
		e = &saved{number: len(s.list), stored: math.MaxInt64}
		s.entries[name] = e
		s.list = append(s.list, e)
	}
	return e
}

// until returns the latest time of an operation's effect. It is false for an operation without a
// visible effect. An unknown operation may take effect at any later time. It is a candidate at
// every step, so its time ends as soon as it cannot matter any more.
func (s *session) until(o Op) (int64, bool) {
	switch o.Outcome {
	case Nothing:
		return 0, false
	case Unknown:
	default:
		return o.Return, true
	}
	switch o.Kind {
	case Clear, Delete, Replace:
		to := int64(forever)
		for _, name := range o.With {
			to = min(to, s.entries[name].stored)
		}
		for _, other := range s.ops { // after a higher token was shown, it is refused
			shown := other.Outcome == OK && other.Turn == "" && other.Fence > o.Fence
			if shown && o.Fence != 0 && other.Return >= o.Call {
				to = min(to, other.Return)
			}
		}
		return to, true
	case Save:
		// After the entry is stored under its turn ID, another copy stores nothing until a Delete. Without a
		// turn ID, there is no other copy.
		e := s.entries[o.Entry]
		to := e.stored
		if s.forgets && e.last > 0 {
			to = e.last
		}
		return to, to != math.MaxInt64 && o.Call <= to
	}
	return 0, false
}

// interrupted reports whether another operation may have come between the two parts of a Load.
func (s *session) interrupted(o Op) bool {
	return slices.ContainsFunc(s.ops, func(other Op) bool {
		return other.Kind != Load && other.Fence != o.Fence && (other.Outcome == OK || other.Outcome == Unknown) && other.Call <= o.Return &&
			(other.Return >= o.Call || other.Outcome == Unknown)
	})
}

// access is a successful one under a lease.
type access struct{ call, end int64 }

// leases are the successful accesses by token.
func (s *session) leases() map[int64][]access {
	of := make(map[int64][]access)
	for _, o := range s.ops {
		if o.Fence != 0 && o.Outcome == OK {
			of[o.Fence] = append(of[o.Fence], access{o.Call, o.Return})
		}
	}
	return of
}

func (s *session) step(o Op, leases map[int64][]access) *step {
	in := &step{Op: o, again: -1}
	switch o.Kind {
	case Load:
		in.seen = s.numbers(o.Seen)
		for _, e := range in.seen {
			in.hash = chain(in.hash, e)
		}
		in.first = true
		for _, a := range leases[o.Fence] {
			// A store that is used by several at once may take any of them for the first.
			if (a.call != o.Call || a.end != o.Return) && a.call <= o.Return {
				in.first = false
			}
		}
	case Replace:
		in.seen, in.with = s.numbers(o.Range), s.numbers(o.With)
	case Save:
		in.entry = s.entries[o.Entry]
		if t := in.entry.turn; t != nil {
			if t.number >= 0 {
				in.again = t.number + slices.Index(t.entries, in.entry)
			}
			in.founded = len(t.entries) > 1 && slices.ContainsFunc(s.ops, func(other Op) bool {
				return other.Kind == Save && other.Turn == o.Turn && other.Entry != o.Entry && other.Call < o.Return &&
					(other.Outcome == OK || other.Outcome == Unknown)
			})
		}
	}
	if o.Outcome == Deleted {
		in.founded = slices.ContainsFunc(s.ops, func(other Op) bool {
			return other.Kind == Delete && other.Call < o.Return &&
				(other.Outcome == Unknown || other.Outcome == OK && other.Return > o.Began)
		})
	}
	if o.Outcome == Stale {
		in.excused = o.Mark == 0 && o.Fence != 0 || slices.ContainsFunc(s.ops, func(other Op) bool {
			higher := other.Fence > o.Fence || other.Fence == 0 && other.Kind != Load
			shown := other.Outcome == Unknown || other.Outcome == Deleted || other.Outcome == Nothing && other.Kind == Replace
			return shown && other.Call < o.Return && higher
		})
	}
	if o.Fence == 0 && o.Kind != Load && o.Outcome == OK {
		for fence, of := range leases {
			if fence > in.floor && slices.ContainsFunc(of, func(a access) bool { return a.end < o.Call }) {
				in.floor = fence
			}
		}
	}
	return in
}

// numbers returns entries by number.
func (s *session) numbers(names []string) []int32 {
	all := make([]int32, len(names))
	for i, name := range names {
		all[i] = int32(s.entries[name].number)
	}
	return all
}
