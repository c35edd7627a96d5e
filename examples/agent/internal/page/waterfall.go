package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/lockedmemory"
)

// The heights of the parts of a waterfall, in CSS pixels. The template knows the places inside a part.
// All places from left to right are shares of the width, so that the letters are as large on a phone
// as anywhere.
const (
	laneHead  = 34 // the name of an instance
	rowHeight = 40 // a span: its name and duration, and below them its bar
	barHeight = 12
	laneGap   = 18
)

// narrowest is the share that the bar of a short span takes, so that a reader can see it.
const narrowest = 0.008

// share is a place on a picture of any width, from 0, its left edge, to 1.
type share float64

// String is a length in SVG.
func (s share) String() string { return fmt.Sprintf("%.2f%%", 100*float64(s)) }

// waterfall is a picture of the spans of two turns: one that had to wait, and above it the turn in
// its way, to which its span distlock.acquire is linked.
type waterfall struct {
	Holder, Waiter lane
	Height         int
	Link           share // the place of the line from the waiting span to the turn that it waited for
	From, To       int   // the ends of the line, but for the place of a bar in its row
}

type lane struct {
	Instance string
	Y        int
	Bars     []bar
}

type bar struct {
	Name, From, Duration string
	Waits                bool
	X, Width             share
	Y                    int
}

// Lanes are the turns from top to bottom.
func (w *waterfall) Lanes() []lane { return []lane{w.Holder, w.Waiter} }

// waterfallOf draws the two turns that show best which turn waits for which. It returns nil if no turn
// waited for another one.
func waterfallOf(spans []balancer.Span) *waterfall {
	holder, waiter := clearest(spans)
	if holder == nil {
		return nil
	}
	start, end := holder[0].Start, waiter[0].End
	if waiter[0].Start.Before(start) {
		start = waiter[0].Start
	}
	length := max(1, end.Sub(start))
	place := func(t time.Time) share { return min(1, share(t.Sub(start))/share(length)) }
	w := &waterfall{}
	y := 0
	draw := func(turn []balancer.Span) lane {
		l := lane{Instance: turn[0].Instance, Y: y}
		y += laneHead
		for _, s := range turn {
			l.Bars = append(l.Bars, bar{Name: s.Name, From: report.Milliseconds(s.Start.Sub(start)), Duration: report.Milliseconds(s.End.Sub(s.Start)),
				Waits: s.Name == distlock.OpAcquire, X: min(1-narrowest, place(s.Start)), Width: max(narrowest, place(s.End)-place(s.Start)), Y: y})
			y += rowHeight
		}
		y += laneGap
		return l
	}
	w.Holder, w.Waiter = draw(holder), draw(waiter)
	w.Height = y
	turn := w.Holder.Bars[0]
	wait := w.Waiter.Bars[slices.IndexFunc(w.Waiter.Bars, func(b bar) bool { return b.Waits })]
	w.Link = (max(turn.X, wait.X) + min(turn.X+turn.Width, wait.X+wait.Width)) / 2
	w.From, w.To = wait.Y, turn.Y+barHeight
	return w
}

// clearest returns the spans of two turns, in the order of their starts. Its choice has the longest
// time in which the waiter waited for this holder, less the time in which it waited for others.
func clearest(spans []balancer.Span) (holder, waiter []balancer.Span) {
	// By the ID of the turn's span:
	turns, acquires, saved := map[string][]balancer.Span{}, map[string]balancer.Span{}, map[string]time.Time{}
	for _, s := range spans {
		switch s.Name {
		case lockedmemory.OpAnswer:
			turns[s.ID] = append(turns[s.ID], s)
			continue
		case distlock.OpAcquire:
			acquires[s.Parent] = s
		case lockedmemory.OpSaveOnce:
			if !s.Failed {
				saved[s.Parent] = s.End
			}
		}
		turns[s.Parent] = append(turns[s.Parent], s)
	}
	best := time.Duration(-1 << 62)
	for id, wait := range acquires {
		for _, link := range wait.Links {
			// Turns that have stored nothing would make a poor picture: their message had been answered
			// already, or they lost the lock.
			if saved[id].IsZero() || saved[link].IsZero() {
				continue
			}
			from, to := wait.Start, wait.End
			if held := acquires[link].End; held.After(from) {
				from = held
			}
			if freed := saved[link]; freed.Before(to) {
				to = freed
			}
			if clear := 2*to.Sub(from) - wait.End.Sub(wait.Start); clear > best {
				best, holder, waiter = clear, turns[link], turns[id]
			}
		}
	}
	for _, turn := range [][]balancer.Span{holder, waiter} {
		slices.SortFunc(turn, func(a, b balancer.Span) int { return cmp.Or(a.Start.Compare(b.Start), b.End.Compare(a.End)) })
	}
	return holder, waiter
}
