package report

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
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
	for i, run := range c.Runs {
		names = append(names, run.Locked)
		columns = append(columns, table.ColumnConfig{Number: i + 2, Align: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	t.AppendRow(names)
	for _, rows := range c.Table() {
		t.AppendSeparator()
		for _, r := range rows {
			name := r.Name
			if r.Meaning != "" {
				name += ": " + r.Meaning
			}
			t.AppendRow(table.Row{name, r.Cells[0], r.Cells[1], r.Cells[2]})
		}
	}
	fmt.Fprintf(w, "\n%s\n", t.Render())
	for _, p := range append([]string{c.Headline()}, c.Story()...) {
		fmt.Fprintln(w)
		for line := range strings.Lines(text.WrapSoft(p, width)) {
			fmt.Fprintln(w, strings.TrimSpace(line)) // without what WrapSoft fills it up with
		}
	}
	return c.Err()
}

// Progress says on stderr that a run has begun and, on a terminal, how much of it is done. Call the
// returned function for each step.
func Progress(steps int, locked Locked) func() {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "%s: %d messages\n", locked, steps)
		return func() {}
	}
	bar := progressbar.Default(int64(steps), fmt.Sprintf("%-10s", locked))
	return func() { _ = bar.Add(1) }
}
