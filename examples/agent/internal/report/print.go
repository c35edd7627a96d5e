package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// width is how many columns a paragraph takes at most.
const width = 96

// Print tells on a terminal what the two runs show. It returns an error if the lock broke its promise.
func (c *Comparison) Print(w io.Writer) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}, {Number: 3, Align: text.AlignRight}})
	t.SetTitle("%s", c.Title())
	without, with := c.Columns()
	t.AppendRow(table.Row{"", without, with})
	t.AppendSeparator()
	for i, rows := range [][]Row{append([]Row{c.Messages()}, c.Damage()...), c.Events(), c.Times()} {
		if i > 0 {
			t.AppendSeparator()
		}
		for _, r := range rows {
			t.AppendRow(table.Row{r, r.Without, r.With})
		}
	}
	fmt.Fprintf(w, "\n%s\n\n%s", t.Render(), paragraph(c.WithoutLock()))
	if err := c.Err(); err != nil {
		for _, f := range c.With.Findings(5) {
			fmt.Fprintf(w, "conversation %d, %s\n", f.Session, f.Finding)
		}
		return err
	}
	fmt.Fprint(w, paragraph(c.WithLock()), paragraph(c.UnderChaos()), "\n")
	waterfall(w, c.With.Spans)
	return nil
}

// paragraph breaks a text into lines.
func paragraph(s string) (lines string) {
	for line := range strings.Lines(text.WrapSoft(s, width)) {
		lines += strings.TrimSpace(line) + "\n" // without what WrapSoft fills it up with
	}
	return lines
}
