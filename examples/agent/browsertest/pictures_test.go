//go:build browser

package browsertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// times wants bars as long as the terminal says, and a line at the ideal time.
func times(o *observation, r *run) []string {
	var p problems
	took, least := r.numbers("time for all messages"), r.numbers("the least time")[2]
	picture, ok := o.picture("times-picture")
	if !ok || len(picture.Bars) != len(took) || len(picture.Links) != 1 || least == 0 {
		return []string{fmt.Sprintf("the picture has %d bars and %d lines for an ideal time of %v s", len(picture.Bars), len(picture.Links), least)}
	}
	longest := max(took[0], took[1], took[2], least)
	second := picture.Box.Width / longest
	slack := 0.06 * second // the terminal rounds to 0.1 s
	for i, bar := range picture.Bars {
		p.add(math.Abs(bar.Box.Width-took[i]*second) <= 2*slack+2, "bar %d is %.0f wide, want %.0f", i, bar.Box.Width, took[i]*second)
	}
	line := picture.Links[0]
	p.add(math.Abs(line.X+line.Width/2-picture.Box.X-least*second) <= 2*slack+2, "the line is at %.0f, want %.0f", line.X-picture.Box.X, least*second)
	return p
}

// waits wants the figures of the terminal, in order, and as many columns as the picture promises.
func waits(o *observation, r *run) []string {
	var p problems
	t := o.table("percentiles")
	if len(t.Rows) != 5 || len(t.Rows[1]) != 3 {
		return []string{fmt.Sprintf("the percentiles are %q", t.Rows)}
	}
	p.add(slices.Equal(t.Rows[1][1:], r.values("wait for the lock, median")[1:]), "the medians are %s", t.Rows[1])
	p.add(slices.Equal(t.Rows[4][1:], r.values("wait for the lock, longest")[1:]), "the longest are %s", t.Rows[4])
	for run := range 2 {
		last := 0.0
		for _, row := range t.Rows[1:] {
			var ms float64
			_, err := fmt.Sscanf(row[run+1], "%f ms", &ms)
			p.add(err == nil && ms >= last, "%q is less than the one before", row)
			last = ms
		}
	}
	picture, ok := o.picture("waits")
	p.add(ok && len(picture.Bars) > 1 && len(picture.Links) == 2, "there are %d columns and %d medians", len(picture.Bars), len(picture.Links))
	tallest := 0.0
	for _, bar := range picture.Bars {
		tallest = max(tallest, bar.Box.Height)
	}
	p.add(math.Abs(tallest-96) < 0.5, "the highest column has %.1f pixels", tallest)
	return p
}

// timeline wants a track of each instance and run, with as many kills and pauses as the terminal.
func timeline(o *observation, r *run) []string {
	var p problems
	picture, ok := o.picture("timeline")
	instances := 0
	_, words, _ := strings.Cut(o.table("comparison").Caption, "answered by ")
	_, _ = fmt.Sscanf(words, "%d instances", &instances)
	p.add(ok && instances > 0 && picture.Tracks == instances*len(runs), "%d tracks are for %d instances", picture.Tracks, instances)
	sum := func(n [3]float64) int { return int(n[0] + n[1] + n[2]) }
	kills, pauses := sum(r.numbers("instances killed")), sum(r.numbers("instances paused"))
	p.add(picture.Kills == kills, "%d kills are marked, want %d", picture.Kills, kills)
	p.add(picture.Pauses == pauses, "%d pauses are marked, want %d", picture.Pauses, pauses)
	p.add(len(picture.Bars) >= picture.Tracks+pauses, "there are %d bars on %d tracks", len(picture.Bars), picture.Tracks)
	return p
}

// waterfall wants the spans of the terminal, and a link, unless no turn waited.
func waterfall(o *observation, r *run) []string {
	var p problems
	want := r.spans()
	picture, ok := o.picture("waterfall")
	if len(want) == 0 {
		p.add(!ok && strings.Contains(o.Text, "No turn had to wait for another one"), "no turn waited, but the page does not say so")
		return p
	}
	p.add(slices.Equal(picture.Spans, want), "the spans are %q, want %q", picture.Spans, want)
	p.add(len(picture.Bars) == len(want), "%d bars are for %d spans", len(picture.Bars), len(want))
	if len(picture.Links) != 1 || len(picture.Bars) != len(want) {
		p.add(len(picture.Links) == 1, "there are %d links", len(picture.Links))
		return p
	}
	// The link ends at bars: at that of a whole turn, and at that of a wait.
	link, ends := picture.Links[0], []string{}
	for i, bar := range picture.Bars {
		within := link.X >= bar.Box.X-0.5 && link.X <= bar.Box.X+bar.Box.Width+0.5
		if within && (math.Abs(bar.Box.Y+bar.Box.Height-link.Y) < 1 || math.Abs(bar.Box.Y-link.Y-link.Height) < 1) {
			name, _, _ := strings.Cut(want[i], " ")
			ends = append(ends, name)
		}
	}
	p.add(slices.Equal(ends, []string{"lockedmemory.answer", "distlock.acquire"}), "the link leads to %q", ends)
	return p
}

// pictures wants that everything in a picture has a size and is inside.
func pictures(o *observation, _ *run) []string {
	var p problems
	for _, picture := range o.Pictures {
		p.add(picture.Box.Width > 250 && picture.Box.Height > 150, "%s is %v wide and %v high", picture.ID, picture.Box.Width, picture.Box.Height)
		p.add(len(picture.Labels) == 2 && len(picture.Labels[0]) > 20 && len(picture.Labels[1]) > 80, "%s is described as %q", picture.ID, picture.Labels)
		for i, bar := range picture.Bars {
			least := 1.0
			if picture.ID == "timeline" {
				least = 0.3
			}
			p.add(bar.Box.Width >= least && bar.Box.Height > 0, "bar %d of %s is %v wide and %v high", i, picture.ID, bar.Box.Width, bar.Box.Height)
			p.add(bar.Box.inside(picture.Box), "bar %d of %s is outside: %+v of %+v", i, picture.ID, bar.Box, picture.Box)
		}
		for _, t := range picture.Texts {
			p.add(t.Box.Width > 0 && t.Box.inside(picture.Box), "%q is outside %s: %+v of %+v", t.Text, picture.ID, t.Box, picture.Box)
		}
		for i, a := range picture.Texts {
			for _, b := range picture.Texts[i+1:] {
				p.add(!a.Box.touches(b.Box), "%q and %q touch in %s: %+v and %+v", a.Text, b.Text, picture.ID, a.Box, b.Box)
			}
		}
		for _, link := range picture.Links {
			p.add(link.Height > 0 && link.inside(picture.Box), "the link is outside: %+v of %+v", link, picture.Box)
		}
	}
	return p
}
