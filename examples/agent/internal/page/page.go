// Package page tells in HTML what became of conversations, without and with a lock: one file that needs no other, no script
// and no network.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

//go:embed *.tmpl
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.tmpl"))

// content is what the templates say. Whatever a picture cannot show for want of data is nil.
type content struct {
	*report.Comparison
	Broken    error // the lock broke its promise
	Waits     *waits
	Waterfall *waterfall
	NoSpans   string
}

// Write writes the page about two runs.
func Write(w io.Writer, c *report.Comparison) error {
	data := content{Comparison: c, Broken: c.Err(), Waits: waitsOf(c.WholeTurn.Waits()), NoSpans: report.NobodyWaited}
	if scene, ok := report.Clearest(c.WholeTurn.Spans); ok {
		data.Waterfall = waterfallOf(scene)
	}
	return templates.ExecuteTemplate(w, "page.html.tmpl", data)
}

// share is a place on a picture of any width, from 0, its left edge, to 1.
type share float64

// String is what SVG takes for a length.
func (s share) String() string { return fmt.Sprintf("%.2f%%", 100*float64(s)) }
