package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
)

// columns is how many of them the time axis takes.
const columns = 60

// meeting is two spans distlock.acquire: that of a turn that had to wait, and that of the turn in its way, which ended at
// freed.
type meeting struct {
	holder, waiter spans.Span
	freed          time.Time
}

// clear says how clearly the picture of a meeting shows who waits for whom: it is the time in which the waiter waited
// for the holder, less the time in which it waited for others.
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

// waterfall draws the spans of a turn that had to wait, and above them those of the turn in its way, to which its span
// distlock.acquire is linked. It takes at most 100 columns.
func waterfall(w io.Writer, finished []spans.Span) {
	turns := map[string][]spans.Span{} // by the ID of the turn's span
	for _, s := range finished {
		turns[s.ID] = append(turns[s.ID], s)
		turns[s.Parent] = append(turns[s.Parent], s)
	}
	// Turns whose message had been answered already have not saved, and would make a poor picture.
	acquires, ends := map[string]spans.Span{}, map[string]time.Time{}
	for id, turn := range turns {
		acquire, save := named(turn, distlock.OpAcquire), named(turn, lockedmemory.OpSave)
		if acquire != nil && save != nil {
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
		fmt.Fprintln(w, "No turn had to wait for another one, so there are no spans to show.")
		return
	}
	shown := slices.MaxFunc(met, func(a, b meeting) int { return cmp.Compare(a.clear(), b.clear()) })
	holder, waiter := turns[shown.holder.Parent], turns[shown.waiter.Parent]
	both := slices.Concat(holder, waiter)
	start := slices.MinFunc(both, func(a, b spans.Span) int { return a.Start.Compare(b.Start) }).Start
	end := slices.MaxFunc(both, func(a, b spans.Span) int { return a.End.Compare(b.End) }).End

	fmt.Fprintf(w, "A turn of %s that had to wait (░), and above it the turn of %s in its way:\n\n",
		shown.waiter.Instance, shown.holder.Instance)
	drawTurn(w, holder, start, end)
	drawTurn(w, waiter, start, end)
}

func named(turn []spans.Span, name string) *spans.Span {
	i := slices.IndexFunc(turn, func(s spans.Span) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &turn[i]
}

// drawTurn draws a span per row: the outer ones above what they contain.
func drawTurn(w io.Writer, turn []spans.Span, start, end time.Time) {
	slices.SortFunc(turn, func(a, b spans.Span) int { return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End)) })
	fmt.Fprintln(w, turn[0].Instance)
	column := func(t time.Time) int { return int(t.Sub(start) * columns / max(1, end.Sub(start))) }
	for _, s := range turn {
		from, to := column(s.Start), column(s.End)
		block := "█"
		if s.Name == distlock.OpAcquire {
			block = "░"
		}
		bar := strings.Repeat(" ", from) + strings.Repeat(block, to-from)
		if from == to { // shorter than a column
			bar = strings.Repeat(" ", min(from, columns-1)) + "▏"
		}
		fmt.Fprintf(w, "  %-18s│%-*s│%12s\n", s.Name, columns, bar, milliseconds(s.End.Sub(s.Start)))
	}
}
