// Package page shows in HTML how conversations fared in three runs: one file without scripts, which
// needs no other file and no network.
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

// content is the data of the templates. A picture without data is nil.
type content struct {
	*report.Comparison
	Broken    error // the lock around the whole turn broke its promise
	Chats     *chats
	Waterfall *waterfall
	NoSpans   string
}

// Write writes the page about three runs.
func Write(w io.Writer, c *report.Comparison) error {
	data := content{Comparison: c, Broken: c.Err(), Chats: chatsOf(c), NoSpans: report.NobodyWaited}
	if scene, ok := report.Clearest(c.WholeTurn.Spans); ok {
		data.Waterfall = waterfallOf(scene)
	}
	return templates.ExecuteTemplate(w, "page.html.tmpl", data)
}

// share is a place on a picture of any width, from 0, its left edge, to 1.
type share float64

// String is a length in SVG.
func (s share) String() string { return fmt.Sprintf("%.2f%%", 100*float64(s)) }
