//go:build browser

package browsertest

import (
	"fmt"
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
	"headline":  headline,
	"chats":     chats,
	"table":     comparison,
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

// readable holds texts to the contrast that WCAG 2 wants on level AA whatever their size, and bars
// to that of graphics.
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
	want := []string{"One conversation, three runs", "All messages", "A turn that had to wait", "How to read this"}
	p.add(slices.Equal(tops, want), "the headings are %q, want %q", tops, want)
	for _, t := range o.Tables {
		p.add(t.Caption != "", "table %s has no caption", t.ID)
		p.add(len(t.Unscoped) == 0, "heads of table %s have no scope: %s", t.ID, t.Unscoped)
	}
	p.add(strings.HasSuffix(strings.TrimSpace(o.Text), "-report FILE"), "the page has no end")
	return p
}

// headline wants that the first heading has the terminal's count of wrong messages of each run, and
// that the three cards below have them, too.
func headline(o *observation, r *run) []string {
	var p problems
	text := ""
	for _, h := range o.Headings {
		if h.Level == 1 {
			text = h.Text
		}
	}
	p.add(text != "" && strings.Contains(r.paragraphs(), text), "the terminal does not say %q", text)
	p.add(strings.HasSuffix(text, " 0."), "the headline is %q", text)
	rest := text
	for i, card := range o.Cards {
		p.add(i < len(runs) && strings.HasPrefix(card, runs[i]+" "), "card %d is %q", i, card)
		var wrong, all int
		_, err := fmt.Sscanf(strings.TrimPrefix(card, runs[min(i, 2)]+" "), "%d of %d messages went wrong", &wrong, &all)
		p.add(err == nil && all > 0 && all == int(r.numbers("messages of users")[min(i, 2)]), "card %d is %q", i, card)
		if wrong > 0 {
			_, after, found := strings.Cut(rest, fmt.Sprint(" ", wrong))
			p.add(found, "card %d is %q, and the headline is %q", i, card, text)
			rest = after
		}
	}
	p.add(len(o.Cards) == len(runs), "there are %d cards", len(o.Cards))
	return p
}

// comparison wants the table of the terminal, and its words.
func comparison(o *observation, r *run) []string {
	var p problems
	rows := r.table()
	p.add(len(rows) >= 8, "the terminal shows only %d rows", len(rows))
	seen := o.table("comparison").Rows
	p.add(len(seen) == len(rows), "there are %d rows, want %d", len(seen), len(rows))
	for i := range min(len(seen), len(rows)) {
		want := slices.Clone(rows[i])
		want[0] = strings.Replace(want[0], ":", "", 1) // name and meaning stand below each other
		p.add(slices.Equal(seen[i], want), "row %d is %q, want %q", i, seen[i], want)
	}
	words := strings.Join(strings.Fields(o.Text), " ")
	for sentence := range strings.SplitSeq(r.paragraphs(), ". ") {
		p.add(strings.Contains(words, strings.TrimSuffix(sentence, ".")), "the page does not say %q", sentence)
	}
	return p
}
