//go:build browser

package browsertest

import "fmt"

// checks find the faults of a page.
var checks = map[string]func(o *observation) []string{
	"console":  func(o *observation) []string { return o.messages },
	"network":  func(o *observation) []string { return o.requests },
	"width":    fits,
	"theme":    theme,
	"contrast": readable,
}

// problems collects what is wrong.
type problems []string

func (p *problems) add(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func fits(o *observation) []string {
	var p problems
	p.add(o.Width == float64(o.view.width), "the window is %v wide", o.Width)
	p.add(o.ScrollWidth <= o.Width, "the page is %v wide", o.ScrollWidth)
	p.add(len(o.Wide) == 0, "too wide are %s", o.Wide)
	for _, t := range o.Texts {
		p.add(t.X >= -0.5 && t.X+t.Width <= o.Width+0.5, "too wide is %s", t.What)
	}
	return p
}

func theme(o *observation) []string {
	var p problems
	p.add(o.Light == (o.view.theme == "light"), "the theme is %s, but light is %t", o.view.theme, o.Light)
	return p
}

// readable holds texts to the contrast that WCAG 2 wants on level AA whatever their size, and bars
// to that of graphics.
func readable(o *observation) []string {
	var p problems
	p.add(len(o.Texts) > 50, "there are only %d texts", len(o.Texts))
	for _, t := range o.Texts {
		p.add(t.Contrast >= 4.5, "%s has a contrast of %.2f", t.What, t.Contrast)
	}
	for i, contrast := range o.Bars {
		p.add(contrast >= 3, "bar %d has a contrast of %.2f", i, contrast)
	}
	return p
}
