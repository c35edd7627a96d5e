package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// width is how many columns a line takes at most.
const width = 80

// Print writes the result for a terminal. It returns an error if the lock broke its promise.
func (c *Comparison) Print(w io.Writer) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleRounded)
	t.SetTitle("%s", c.Title())
	names := table.Row{"what the lock covers"}
	var columns []table.ColumnConfig
	for i, run := range c.Runs() {
		names = append(names, run.Locked.Name())
		columns = append(columns, table.ColumnConfig{Number: i + 2, Align: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	t.AppendRow(names)
	t.AppendSeparator()
	for i, rows := range [][]Row{append([]Row{c.Messages()}, c.Damage()...), c.Events(), c.Times()} {
		if i > 0 {
			t.AppendSeparator()
		}
		for _, r := range rows {
			cells := table.Row{r}
			for _, cell := range r.Cells {
				cells = append(cells, cell.Text)
			}
			t.AppendRow(cells)
		}
	}
	fmt.Fprintf(w, "\n%s\n\n%s\n", t.Render(), Paragraph(c.Headline()))
	for _, p := range c.Story() {
		fmt.Fprintln(w, Paragraph(p))
	}
	if err := c.Err(); err != nil {
		for _, f := range c.WholeTurn.Findings(5) {
			fmt.Fprintf(w, "conversation %d, %s\n", f.Session, f.Finding)
		}
		return err
	}
	waterfall(w, c.WholeTurn.Spans)
	return nil
}

// Paragraph breaks a text into lines of 80 columns, at words.
func Paragraph(s string) (lines string) {
	for line := range strings.Lines(text.WrapSoft(s, width)) {
		lines += strings.TrimSpace(line) + "\n" // without what WrapSoft fills it up with
	}
	return lines
}
