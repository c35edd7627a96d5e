package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/stats"
)

// WriteTables writes a table for each scenario and one of the ratios.
func (r *Report) WriteTables(w io.Writer) error {
	p := &printer{w: w}
	servers := "Redis " + r.Redis
	if r.Postgres != "" {
		servers += " and PostgreSQL " + r.Postgres
	}
	p.printf("%d CPUs, %s on loopback, %s; pace %s, %s\n", r.CPUs, servers, r.Go, r.Pace, r.Time.Format("2 January 2006"))
	p.printf("Medians of the rounds, and from the lowest to the highest round.\n")
	for _, o := range r.Outcomes {
		p.printf("\n%s: %s (%s)\n%s\n", o.Name, o.Title, plural(o.Rounds, "round"), subjects(o))
		for _, note := range o.Notes {
			p.printf("%s\n", note)
		}
	}
	p.printf("\nratios\n%s\n", ratios(r.Outcomes))
	switch missed := len(r.Missed()); missed {
	case 0:
		p.printf("All bars are met.\n")
	default:
		p.printf("%s missed.\n", plural(missed, "bar"))
	}
	return p.err
}

// across is how many columns a table has at most, so that it fits a terminal.
const across = 4

// subjects renders the figures of all subjects, in as many tables as their columns need.
func subjects(o *scenario.Outcome) string {
	var columns []scenario.Cell // of the row that has the most: one may lack some
	for _, row := range o.Rows {
		if len(row.Cells) > len(columns) {
			columns = row.Cells
		}
	}
	var tables []string
	for some := range slices.Chunk(columns, across) {
		tables = append(tables, columnsOf(o, some))
	}
	return strings.Join(tables, "\n\n")
}

func columnsOf(o *scenario.Outcome, columns []scenario.Cell) string {
	t := newTable()
	header := table.Row{""}
	for _, c := range columns {
		header = append(header, c.Heading)
	}
	t.AppendHeader(header)
	for _, row := range o.Rows {
		line, measured := table.Row{row.Subject}, false
		for _, c := range columns {
			cell, ok := o.Cell(row.Subject, c.Key)
			if !ok {
				line = append(line, "")
				continue
			}
			measured = true
			line = append(line, show(cell.Spread, o.Rounds))
		}
		if measured {
			t.AppendRow(line)
		}
	}
	alignRight(t, len(columns))
	return t.Render()
}

func ratios(outcomes []*scenario.Outcome) string {
	t := newTable()
	t.AppendHeader(table.Row{"", "against", "median", "range", "bar", ""})
	for _, o := range outcomes {
		for _, r := range o.Ratios {
			line := table.Row{r.Key, r.Against, figure(r.Median), figure(r.Min) + "–" + figure(r.Max), "", ""}
			if bar, ok := barOf(r.Key); ok {
				sign, verdict := "≤ ", "met"
				if bar.AtLeast {
					sign = "≥ "
				}
				if !bar.Met(r) {
					verdict = "missed"
				}
				line[4], line[5] = sign+strconv.FormatFloat(bar.Limit, 'f', -1, 64), verdict
			}
			t.AppendRow(line)
		}
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 3, Align: text.AlignRight}, {Number: 4, Align: text.AlignRight}, {Number: 5, Align: text.AlignRight},
	})
	return t.Render()
}

func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	t.SetStyle(style)
	return t
}

func alignRight(t table.Writer, columns int) {
	var configs []table.ColumnConfig
	for i := range columns {
		configs = append(configs, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// show writes a median with its range, which a single round does not have.
func show(s stats.Spread, rounds int) string {
	if rounds == 1 {
		return figure(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.Median), figure(s.Min), figure(s.Max))
}

// figure writes a number with two or three digits that count, and thousands apart.
func figure(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "–"
	}
	digits := 0
	switch a := math.Abs(f); {
	case f >= 10_000:
		return stats.Thousands(f)
	case a >= 100 || a == 0:
	case a >= 10:
		digits = 1
	case a >= 0.1:
		digits = 2
	default:
		digits = 1 - int(math.Floor(math.Log10(a))) // two that count
	}
	return strconv.FormatFloat(f, 'f', digits, 64)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printer keeps the first error of several writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
