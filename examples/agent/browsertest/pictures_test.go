//go:build browser

package browsertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// waterfall wants the spans of two turns, and a link between them, unless no turn waited.
func waterfall(o *observation, r *run) []string {
	var p problems
	picture, ok := o.picture("waterfall")
	if strings.Contains(o.Text, "No turn had to wait for another one") {
		p.add(!ok && r.values("wait for the lock, longest")[2] < "5", "a turn waited, but the page does not say so")
		return p
	}
	turn := []string{"lockedmemory.answer", "distlock.acquire", "lockedmemory.load", "model", "lockedmemory.save_once", "distlock.release"}
	want, names := slices.Concat(turn, turn), []string{}
	longest := map[string]float64{} // of a name: as long as the whole turn
	for _, span := range picture.Spans {
		var name string
		var ms float64
		_, err := fmt.Sscanf(span, "%s %f ms", &name, &ms)
		names = append(names, name)
		p.add(err == nil && (name == turn[0] || ms <= longest[turn[0]]), "a span is %q", span)
		longest[name] = max(longest[name], ms)
	}
	renewal := func(name string) bool { return name == "distlock.extend" } // may be in any turn
	p.add(slices.Equal(slices.DeleteFunc(slices.Clone(names), renewal), want), "the spans are %q, want %q", names, want)
	p.add(len(picture.Bars) == len(names), "%d bars are for %d spans", len(picture.Bars), len(names))
	if len(picture.Links) != 1 || len(picture.Bars) != len(names) {
		p.add(len(picture.Links) == 1, "there are %d links", len(picture.Links))
		return p
	}
	// The link ends at bars: at that of a whole turn, and at that of a wait.
	link, ends := picture.Links[0], []string{}
	for i, bar := range picture.Bars {
		within := link.X >= bar.Box.X-0.5 && link.X <= bar.Box.X+bar.Box.Width+0.5
		if within && (math.Abs(bar.Box.Y+bar.Box.Height-link.Y) < 1 || math.Abs(bar.Box.Y-link.Y-link.Height) < 1) {
			ends = append(ends, names[i])
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
			p.add(bar.Box.Width >= 1 && bar.Box.Height > 0, "bar %d of %s is %v wide and %v high", i, picture.ID, bar.Box.Width, bar.Box.Height)
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
