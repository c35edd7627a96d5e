package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
	"github.com/belugalock/belugalock/lockedmemory"
)

// The parts of a waterfall from top to bottom, in CSS pixels. Its width is that of the window: all
// places from left to right are shares of it, so that the letters are as large on a phone as
// anywhere.
const (
	laneHead  = 34 // the name of an instance
	rowHeight = 40 // a span: its name and duration, and below them its bar
	textBase  = 15 // from the top of a row
	barTop    = 21
	barHeight = 12
	laneGap   = 18
	axisFoot  = 26
)

// narrowest is the share that the bar of a short span takes, so that it can be seen.
const narrowest = 0.008

// waterfall is a picture of the spans of two turns.
type waterfall struct {
	Holder, Waiter string // the instances
	Height, Foot   int
	Ticks          []tick
	Lanes          []lane
	Link           link
	Story          string // for those who cannot see it
}

type lane struct {
	Instance string
	Y        int
	Bars     []bar
}

type bar struct {
	Name, Duration string
	Waits          bool
	X, Width       share
	Text, Top      int
}

// link leads from the span that waited to the turn that it waited for.
type link struct {
	X        share
	From, To int
}

// Height is that of the bar itself.
func (bar) Height() int { return barHeight }

// Text is the base line of the name.
func (l lane) Text() int { return l.Y + 20 }

func waterfallOf(scene report.Scene) *waterfall {
	w := &waterfall{Holder: scene.Holder[0].Instance, Waiter: scene.Waiter[0].Instance, Ticks: ticks(scene.End.Sub(scene.Start), pieces)}
	place := func(t time.Time) share { return share(t.Sub(scene.Start)) / share(max(1, scene.End.Sub(scene.Start))) }
	y := 0
	var story []string
	for _, turn := range [][]spans.Span{scene.Holder, scene.Waiter} {
		l := lane{Instance: turn[0].Instance, Y: y}
		y += laneHead
		for _, s := range turn {
			b := bar{Name: s.Name, Duration: report.Milliseconds(s.End.Sub(s.Start)), Waits: report.Waits(s),
				X: place(s.Start), Width: place(s.End) - place(s.Start), Text: y + textBase, Top: y + barTop}
			if b.Width < narrowest {
				b.X, b.Width = min(b.X, 1-narrowest), narrowest
			}
			l.Bars = append(l.Bars, b)
			story = append(story, fmt.Sprintf("%s, %s: from %s for %s", s.Instance, s.Name, report.Milliseconds(s.Start.Sub(scene.Start)), b.Duration))
			y += rowHeight
		}
		w.Lanes = append(w.Lanes, l)
		y += laneGap
	}
	w.Foot = y - laneGap/2
	w.Height = w.Foot + axisFoot
	w.Story = strings.Join(story, "; ") + "."
	w.Link = linkOf(w.Lanes[0].Bars, w.Lanes[1].Bars)
	return w
}

// linkOf draws the link amid the time in which the waiting span and the turn that it waited for
// overlap.
func linkOf(holder, waiter []bar) link {
	turn, wait := holder[0], waiter[0]
	for _, b := range holder {
		if b.Name == lockedmemory.OpAnswer {
			turn = b
		}
	}
	for _, b := range waiter {
		if b.Name == distlock.OpAcquire {
			wait = b
		}
	}
	from, to := max(turn.X, wait.X), min(turn.X+turn.Width, wait.X+wait.Width)
	return link{(from + to) / 2, wait.Top, turn.Top + barHeight}
}
