package chaos

import (
	"slices"
	"time"

	"github.com/belugalock/belugalock/internal/integrity"
)

// notesVerdict counts what was found in the sessions of notes.
type notesVerdict struct {
	saves, clears, standing int // acknowledged; stored in the end
	forgotten               int
}

// lag is how long before the death of a master a Save may have been acknowledged that is taken for forgotten, where its place is
// not known.
const lag = int64(time.Second)

// grace is how late something can still happen of which nobody knows whether it did.
const grace = int64(2 * time.Second)

// cleared is one attempt to clear.
type cleared struct {
	begun, ended int64
	fence        int64 // 0: not acknowledged
}

// judgeNotes judges a session with Saves outside of turns and with Clears:
//
//   - what is stored is whole, stored once, and in the order of acknowledgements and of tokens;
//   - what was acknowledged is stored, unless a Clear may have come later;
//   - what was acknowledged before a Clear began is not stored when that was acknowledged;
//   - nothing is stored that was written under a lower token than a Clear that was acknowledged.
func (c *campaign) judgeNotes(v *verdict, s *session, stored []message) integrity.Report {
	var clears []cleared
	units := c.unitsOf(s)
	for _, u := range units {
		if u.kind == aClear || u.kind == aTurnClear {
			for _, a := range u.attempts {
				clears = append(clears, c.clearedBy(v, s, a)...)
			}
		}
	}
	standing := make(map[int]bool)
	messages := make([]integrity.Message, len(stored))
	for i, m := range stored {
		messages[i] = integrity.Message{Turn: m.Turn, Role: m.Role, Writer: ledger, Write: m.Write}
		if m.Role != integrity.Answer {
			continue
		}
		messages[i].Seen = i - 1 // nobody has looked
		standing[m.Turn] = true
		for _, cl := range clears {
			if m.Fence != 0 && cl.fence > m.Fence {
				c.blame(integrity.OutOfOrder, "%s: note %d was written under token %d, and stands there after a Clear under %d", s.name, m.Turn, m.Fence, cl.fence)
			}
		}
	}
	c.inOrderOfLeases(s, stored)
	v.notes.standing += len(standing)

	var attempts []integrity.Attempt
	for _, u := range units {
		if u.kind == aClear || u.kind == aTurnClear {
			continue
		}
		acknowledged, forgotten, mayBeCleared := false, false, mayBeCleared(u, clears)
		for _, a := range u.attempts {
			acknowledged = acknowledged || a.acknowledged()
			judged := integrity.Attempt{Turn: u.turn, Writer: ledger, Acknowledged: a.acknowledged(), Begun: a.begun, Ended: a.ended}
			switch {
			case a.acknowledged() && c.mayHaveForgotten(s, a):
				forgotten = true
				judged.Acknowledged = false
			case a.acknowledged() && standing[u.turn]:
				c.goneBefore(s, a, clears)
			case a.acknowledged():
				judged.Acknowledged = !mayBeCleared
			}
			attempts = append(attempts, judged)
		}
		if acknowledged {
			v.notes.saves++
		}
		if forgotten && !standing[u.turn] && !mayBeCleared {
			v.notes.forgotten++
		}
	}
	return integrity.Judge(messages, attempts)
}

// clearedBy is what an attempt to clear may have done.
func (c *campaign) clearedBy(v *verdict, s *session, a *attempt) []cleared {
	switch {
	case a.acknowledged() && a.done.Fence == 0:
		// It was found to be done: as if it had not been tried.
		return nil
	case a.acknowledged() && c.forgot(s.name, a.done.Fence, a.done.Asked) == nil && !c.mayHaveStrayed(s, a):
		v.notes.clears++
		return []cleared{{a.begun, a.ended, a.done.Fence}}
	case a.outcome() == undone || a.outcome() == held || a.outcome() == refused:
		return nil
	}
	return []cleared{{a.begun, a.ended + grace, 0}}
}

// mayHaveForgotten reports whether the server may have forgotten what an attempt has saved. Of a Save outside of a turn nobody knows the
// place.
func (c *campaign) mayHaveForgotten(s *session, a *attempt) bool {
	if c.mayHaveStrayed(s, a) {
		return true
	}
	if a.done.Fence != 0 {
		return c.forgot(s.name, a.done.Fence, a.done.Asked) != nil
	}
	for _, f := range c.failovers {
		last, ok := f.last[s.name]
		if ok && a.done.Asked < f.killed && (a.done.Time > f.killed-lag || last == place{}) {
			return true
		}
	}
	return false
}

// mayHaveStrayed reports whether an attempt may have worked on a master that came back empty, and was none any more.
func (c *campaign) mayHaveStrayed(s *session, a *attempt) bool {
	return slices.ContainsFunc(c.failovers, func(f failover) bool {
		_, ok := f.last[s.name]
		return ok && f.back <= a.done.Asked && a.done.Asked <= f.over
	})
}

// goneBefore checks that what was acknowledged before a Clear does not stand there.
func (c *campaign) goneBefore(s *session, a *attempt, clears []cleared) {
	for _, cl := range clears {
		if cl.fence != 0 && a.ended < cl.begun {
			c.blame(integrity.OutOfOrder, "%s: note %d was acknowledged before a Clear under token %d began, and stands there", s.name, a.Turn, cl.fence)
		}
	}
}

// mayBeCleared reports whether a Clear may have come after the entry of a message, which any of its attempts has written.
func mayBeCleared(u *unit, clears []cleared) bool {
	return slices.ContainsFunc(clears, func(cl cleared) bool { return cl.ended > u.attempts[0].begun })
}
