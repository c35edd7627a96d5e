package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// The parts of the timeline, in CSS pixels, and the share that the names of instances take at the
// left.
const (
	runHead     = 30
	runGap      = 10
	tracksTall  = 88 // of all instances of a run, if there are few
	margin      = 0.06
	units       = 4000 // of a track's width
	shortest    = 5    // no bar is shorter, so that it can be seen
	unitsApart  = 3    // between bars
	trackApart  = 0.25 // of a track's height
	labelHeight = 14
)

// timeline is a picture of the instances of all runs on one time axis.
type timeline struct {
	Runs         []trackRun
	Ticks        []tick
	Units        int
	Height, Foot int
	Chaos        bool
	Story        string
}

type trackRun struct {
	Name   string
	Text   int // the base line of the name
	Tracks []track
}

// track is a picture of one instance: its turns as paths, its kills and pauses.
type track struct {
	Label              string
	Y, Tall            float64
	Work, Wait, Failed string
	Kills              []share
	Pauses             []extent
}

// extent is a part of a picture from left to right.
type extent struct{ X, Width share }

// Text is the base line of the label.
func (t track) Text() float64 { return t.Middle() + 4.5 }

// Middle is half way down.
func (t track) Middle() float64 { return t.Y + t.Tall/2 }

func timelineOf(c *report.Comparison) *timeline {
	t := &timeline{Units: units, Chaos: c.Chaos.Strikes > 0}
	longest := time.Duration(1)
	for _, r := range c.Runs() {
		longest = max(longest, r.Took)
	}
	row := max(5, min(20, float64(tracksTall)/float64(c.Instances)))
	y := 0.0
	var story []string
	for _, r := range c.Runs() {
		if len(r.Spans) == 0 {
			return nil
		}
		run := trackRun{Name: r.Locked.Name(), Text: int(y) + 18}
		y += runHead
		told := []string{fmt.Sprintf("%s: %s for all messages", run.Name, seconds(r.Took))}
		for n := 1; n <= c.Instances; n++ {
			tr, what := trackOf(r, n, longest)
			tr.Y, tr.Tall = y, row*(1-trackApart)
			if row >= labelHeight || (n-1)%int(labelHeight/row+1) == 0 {
				tr.Label = fmt.Sprint(n)
			}
			run.Tracks = append(run.Tracks, tr)
			told = append(told, what)
			y += row
		}
		t.Runs = append(t.Runs, run)
		story = append(story, strings.Join(told, "; ")+".")
		y += runGap
	}
	t.Foot = int(y)
	t.Height = t.Foot + axisFoot
	t.Story = strings.Join(story, " ")
	for _, mark := range ticks(longest, pieces) {
		mark.X = margin + mark.X*(1-margin)
		t.Ticks = append(t.Ticks, mark)
	}
	return t
}

// interval is a part of a run, in units of a track.
type interval struct{ from, to int }

// trackOf draws instance n, and says in words what it did.
func trackOf(r *report.Result, n int, longest time.Duration) (t track, story string) {
	name := fmt.Sprint("instance-", n)
	unit := func(at time.Time) int {
		return min(units, max(0, int(float64(at.Sub(r.Began))/float64(longest)*units)))
	}
	place := func(at time.Time) share { return margin + share(unit(at))/units*(1-margin) }
	var turns, waits []spans.Span
	var lasts []spans.Span // all spans, to find turns that a kill cut off
	for _, s := range r.Spans {
		if s.Instance != name {
			continue
		}
		lasts = append(lasts, s)
		switch {
		case s.Name == spans.Turn:
			turns = append(turns, s)
		case report.Waits(s):
			waits = append(waits, s)
		}
	}
	byStart(turns)
	byStart(waits)
	var paused time.Time
	kills, pauses := 0, 0
	for _, e := range r.Events {
		if e.Instance != n {
			continue
		}
		switch e.What {
		case balancer.Killed:
			kills++
			t.Kills = append(t.Kills, place(e.At))
			if cut, ok := cutOff(lasts, turns, e.At); ok {
				turns = append(turns, cut)
				byStart(turns)
			}
		case balancer.Paused:
			pauses++
			paused = e.At
		case balancer.Resumed:
			t.Pauses = append(t.Pauses, extent{place(paused), max(narrowest/2, place(e.At)-place(paused))})
		}
	}
	var work, wait, failed []interval
	bad := 0
	for _, turn := range turns {
		bars := &work
		if turn.Error != "" {
			bars, bad = &failed, bad+1
		}
		from := turn.Start
		for ; len(waits) > 0 && waits[0].Start.Before(turn.End); waits = waits[1:] {
			w := waits[0]
			if w.Start.Before(turn.Start) || unit(w.End)-unit(w.Start) < shortest {
				continue
			}
			if unit(from) < unit(w.Start) {
				*bars = add(*bars, unit(from), unit(w.Start))
			}
			wait = add(wait, unit(w.Start), unit(w.End))
			from = w.End
		}
		*bars = add(*bars, unit(from), unit(turn.End)-unitsApart)
	}
	t.Work, t.Wait, t.Failed = path(work), path(wait), path(failed)
	story = fmt.Sprintf("%s: turns %d", name, len(turns))
	for _, s := range []struct {
		n    int
		what string
	}{{bad, "failed"}, {kills, "kills"}, {pauses, "pauses"}} {
		if s.n > 0 {
			story += fmt.Sprintf(", %s %d", s.what, s.n)
		}
	}
	return t, story
}

// byStart sorts spans.
func byStart(s []spans.Span) {
	slices.SortFunc(s, func(a, b spans.Span) int { return a.Start.Compare(b.Start) })
}

// cutOff returns the turn that a kill ended. Its own span is missing, but its first spans may be
// there.
func cutOff(all, turns []spans.Span, killed time.Time) (cut spans.Span, ok bool) {
	var before time.Time // the end of the turn before it
	for _, t := range turns {
		if t.End.Before(killed) && t.End.After(before) {
			before = t.End
		}
	}
	for _, s := range all {
		if s.Start.After(before) && s.End.Before(killed) && (!ok || s.Start.Before(cut.Start)) {
			cut, ok = spans.Span{Name: spans.Turn, Start: s.Start, End: killed, Error: "killed"}, true
		}
	}
	return cut, ok
}

// add appends a bar. It joins bars that cannot be told apart, so that a picture of many turns stays
// small.
func add(bars []interval, from, to int) []interval {
	from = min(from, units-shortest)
	to = max(from+shortest, to)
	if last := len(bars) - 1; last >= 0 && from <= bars[last].to {
		bars[last].to = max(bars[last].to, to)
		return bars
	}
	return append(bars, interval{from, to})
}

// path draws bars of the height 1.
func path(bars []interval) string {
	var b strings.Builder
	for _, i := range bars {
		fmt.Fprintf(&b, "M%d 0h%dv1h-%dz", i.from, i.to-i.from, i.to-i.from)
	}
	return b.String()
}
