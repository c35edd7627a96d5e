//go:build browser

package browsertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// checks say what is wrong with a page, by what is seen of it and by what the terminal showed.
var checks = map[string]func(o *observation, r *run) []string{
	"console":   console,
	"network":   noRequests,
	"scripts":   noScripts,
	"width":     fits,
	"theme":     theme,
	"contrast":  readable,
	"structure": structure,
	"table":     comparison,
	"waits":     waits,
	"waterfall": waterfall,
	"pictures":  pictures,
}

// problems collects what is wrong.
type problems []string

func (p *problems) add(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func console(o *observation, _ *run) (p []string) { return o.messages }

func noRequests(o *observation, _ *run) (p []string) { return o.requests }

// noScripts compares what is seen without scripts with what is seen where they may run.
func noScripts(o *observation, _ *run) []string {
	var p problems
	p.add(o.Scripts == 0, "there are %d scripts", o.Scripts)
	p.add(o.Text == o.scripted, "with scripts the page says\n%s\nwithout\n%s", o.scripted, o.Text)
	return p
}

func fits(o *observation, _ *run) []string {
	var p problems
	p.add(o.Width == float64(o.view.width), "the window is %v wide", o.Width)
	p.add(o.ScrollWidth <= o.Width, "the page is %v wide", o.ScrollWidth)
	p.add(len(o.Wide) == 0, "too wide are %s", o.Wide)
	for _, t := range o.Texts {
		p.add(t.Box.X >= -0.5 && t.Box.X+t.Box.Width <= o.Width+0.5, "too wide is %s", t.What)
	}
	return p
}

func theme(o *observation, _ *run) []string {
	var p problems
	p.add(o.Light == (o.view.theme == "light"), "the theme is %s, but light is %t", o.view.theme, o.Light)
	return p
}

// readable holds texts to the contrast that WCAG 2 wants on level AA whatever their size, and bars to that of graphics.
func readable(o *observation, _ *run) []string {
	var p problems
	p.add(len(o.Texts) > 50, "there are only %d texts", len(o.Texts))
	for _, t := range o.Texts {
		p.add(t.Contrast >= 4.5, "%s has a contrast of %.2f", t.What, t.Contrast)
	}
	for _, picture := range o.Pictures {
		for i, bar := range picture.Bars {
			p.add(bar.Contrast >= 3, "bar %d of %s has a contrast of %.2f", i, picture.ID, bar.Contrast)
		}
	}
	return p
}

func structure(o *observation, r *run) []string {
	var p problems
	p.add(o.Language == "en", "the language is %q", o.Language)
	p.add(o.Title != "", "there is no title")
	level, titles, tops := 0, 0, []string{}
	for _, h := range o.Headings {
		p.add(h.Level <= level+1, "heading %q skips a level", h.Text)
		p.add(h.Box.Width > 100 && h.Box.Height > 10, "heading %q cannot be seen: there may be no fonts", h.Text)
		level = h.Level
		switch level {
		case 1:
			titles++
		case 2:
			tops = append(tops, h.Text)
		}
	}
	p.add(titles == 1, "%d headings are the first", titles)
	want := []string{"What became of the messages", "How long turns waited for the lock", "A turn that had to wait", "How to read this"}
	p.add(slices.Equal(tops, want), "the headings are %q, want %q", tops, want)
	for _, t := range o.Tables {
		p.add(t.Caption != "", "table %s has no caption", t.ID)
		p.add(len(t.Unscoped) == 0, "heads of table %s have no scope: %s", t.ID, t.Unscoped)
	}
	p.add(strings.HasSuffix(strings.TrimSpace(o.Text), "-report FILE"), "the page has no end")
	return p
}

// comparison wants the table of the terminal, and its words.
func comparison(o *observation, r *run) []string {
	var p problems
	rows := r.table()
	p.add(len(rows) >= 8, "the terminal shows only %d rows", len(rows))
	seen := o.table("comparison").Rows
	p.add(len(seen) == len(rows)+1, "there are %d rows, want a head and %d", len(seen), len(rows))
	for i := range min(len(seen)-1, len(rows)) {
		want := slices.Clone(rows[i])
		want[0] = strings.Replace(want[0], ":", "", 1) // name and meaning stand below each other
		p.add(slices.Equal(seen[i+1], want), "row %d is %q, want %q", i+1, seen[i+1], want)
	}
	words := strings.Join(strings.Fields(o.Text), " ")
	for sentence := range strings.SplitSeq(r.paragraphs(), ". ") {
		if !strings.HasPrefix(sentence, "A turn of ") { // the page has other words there
			p.add(strings.Contains(words, strings.TrimSuffix(sentence, ".")), "the page does not say %q", sentence)
		}
	}
	return p
}

// waits wants the figures of the terminal, in order, and as many columns as the picture promises.
func waits(o *observation, r *run) []string {
	var p problems
	t := o.table("percentiles")
	if len(t.Rows) != 5 {
		return []string{fmt.Sprintf("the percentiles are %q", t.Rows)}
	}
	p.add(t.Rows[1][1] == r.value("wait for the lock, median"), "the median is %s", t.Rows[1][1])
	p.add(t.Rows[4][1] == r.value("wait for the lock, longest"), "the longest is %s", t.Rows[4][1])
	last := 0.0
	for _, row := range t.Rows[1:] {
		var ms float64
		_, err := fmt.Sscanf(row[1], "%f ms", &ms)
		p.add(err == nil && ms >= last, "%q is less than the one before", row)
		last = ms
	}
	picture, ok := o.picture("waits")
	p.add(ok && len(picture.Bars) > 0, "there is no picture")
	tallest := 0.0
	for _, bar := range picture.Bars {
		tallest = max(tallest, bar.Box.Height)
	}
	p.add(math.Abs(tallest-150) < 0.5, "the highest column has %.1f pixels", tallest)
	return p
}

// waterfall wants the spans of the terminal, and a link, unless nobody waited.
func waterfall(o *observation, r *run) []string {
	var p problems
	want := r.spans()
	picture, ok := o.picture("waterfall")
	if len(want) == 0 {
		p.add(!ok && strings.Contains(o.Text, "No turn had to wait for another one"), "nobody waited, but the page does not say so")
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
	p.add(slices.Equal(ends, []string{"lockedmemory.turn", "distlock.acquire"}), "the link leads to %q", ends)
	return p
}

// pictures wants that everything in a picture has a size and is inside.
func pictures(o *observation, _ *run) []string {
	var p problems
	for _, picture := range o.Pictures {
		p.add(picture.Box.Width > 250 && picture.Box.Height > 150, "%s is %v wide and %v high", picture.ID, picture.Box.Width, picture.Box.Height)
		p.add(len(picture.Labels) == 2 && len(picture.Labels[0]) > 20 && len(picture.Labels[1]) > 80, "%s is described as %q", picture.ID, picture.Labels)
		for i, bar := range picture.Bars {
			p.add(bar.Box.Width >= 1 && bar.Box.Height > 0, "bar %d of %s is %v wide and %v high", i, picture.ID, bar.Box.Width, bar.Box.Height)
			p.add(bar.Box.inside(picture.Box), "bar %d of %s is outside: %+v of %+v", i, picture.ID, bar.Box, picture.Box)
		}
		for _, t := range picture.Texts {
			p.add(t.Box.Width > 0 && t.Box.inside(picture.Box), "%q is outside %s: %+v of %+v", t.Text, picture.ID, t.Box, picture.Box)
		}
		for _, link := range picture.Links {
			p.add(link.Height > 0 && link.inside(picture.Box), "the link is outside: %+v of %+v", link, picture.Box)
		}
	}
	return p
}
