// Package page shows in HTML how conversations fared in three runs: one file without scripts, which
// needs no other file and no network.
package page

import (
	"embed"
	"html/template"
	"io"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

//go:embed *.tmpl
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.tmpl"))

// content is the data of the templates. A part without data is nil.
type content struct {
	*report.Comparison
	Chats     *chats
	Waterfall *waterfall
}

// Write writes the page about three runs.
func Write(w io.Writer, c *report.Comparison) error {
	return templates.ExecuteTemplate(w, "page.html.tmpl", content{c, chatsOf(c), waterfallOf(c.Runs[2].Spans)})
}
