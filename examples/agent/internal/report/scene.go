package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
)

// Scene is what a waterfall shows: a turn that had to wait, and the turn in its way, to which its
// span distlock.acquire is linked. Each has its spans in the order of their starts, the outer ones
// before what they contain.
type Scene struct {
	Holder, Waiter []spans.Span
	Start, End     time.Time
}

// Waits tells whether a span is one of waiting, not of work.
func Waits(s spans.Span) bool { return s.Name == distlock.OpAcquire }

// Clearest returns the scene that shows best which turn waits for which. Without a turn that waited
// for another, ok is false.
func Clearest(finished []spans.Span) (scene Scene, ok bool) {
	turns := map[string][]spans.Span{} // by the ID of the turn's span
	for _, s := range finished {
		turns[s.ID] = append(turns[s.ID], s)
		turns[s.Parent] = append(turns[s.Parent], s)
	}
	// Turns that have stored nothing would make a poor picture: their message had been answered
	// already, or they lost the lock.
	acquires, ends := map[string]spans.Span{}, map[string]time.Time{}
	for id, turn := range turns {
		acquire, save := named(turn, distlock.OpAcquire), named(turn, lockedmemory.OpSaveOnce)
		if acquire != nil && save != nil && save.Error == "" {
			acquires[id], ends[id] = *acquire, save.End
		}
	}
	var met []meeting
	for _, waiter := range acquires {
		for _, turn := range waiter.Links {
			if holder, ok := acquires[turn]; ok {
				met = append(met, meeting{holder, waiter, ends[turn]})
			}
		}
	}
	if len(met) == 0 {
		return Scene{}, false
	}
	shown := slices.MaxFunc(met, func(a, b meeting) int { return cmp.Compare(a.clear(), b.clear()) })
	scene.Holder, scene.Waiter = turns[shown.holder.Parent], turns[shown.waiter.Parent]
	for _, turn := range [][]spans.Span{scene.Holder, scene.Waiter} {
		slices.SortFunc(turn, func(a, b spans.Span) int { return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End)) })
	}
	both := slices.Concat(scene.Holder, scene.Waiter)
	scene.Start = slices.MinFunc(both, func(a, b spans.Span) int { return a.Start.Compare(b.Start) }).Start
	scene.End = slices.MaxFunc(both, func(a, b spans.Span) int { return a.End.Compare(b.End) }).End
	return scene, true
}

// meeting is two spans distlock.acquire: that of a turn that had to wait, and that of the turn in
// its way, which ended at freed.
type meeting struct {
	holder, waiter spans.Span
	freed          time.Time
}

// clear is large if the picture of a meeting clearly shows the waiter and its holder: the time in
// which the waiter waited for this holder, less the time in which it waited for others.
func (m meeting) clear() time.Duration {
	from, to := m.waiter.Start, m.waiter.End
	if m.holder.End.After(from) {
		from = m.holder.End
	}
	if m.freed.Before(to) {
		to = m.freed
	}
	return 2*to.Sub(from) - m.waiter.End.Sub(m.waiter.Start)
}

func named(turn []spans.Span, name string) *spans.Span {
	i := slices.IndexFunc(turn, func(s spans.Span) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &turn[i]
}
