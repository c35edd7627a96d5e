package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// print writes a value as one JSON document, or what lines returns.
func (t *tool) print(value any, lines func() string) error {
	if t.output != "json" {
		_, err := fmt.Fprintln(t.out, lines())
		return err
	}
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// column is one of a table.
type column struct {
	name         string
	right        bool
	enough, some int                      // the widths to which it shrinks in a narrow terminal; 0: it does not
	cut          func(string, int) string // shortens a cell; nil: middle
}

// tabulate draws rows. If they are wider than the terminal, the widest columns shrink: all to enough
// width first, then to some.
func (t *tool) tabulate(columns []column, rows [][]string) string {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	w.SetStyle(style)
	header, widths, all := table.Row{}, make([]int, len(columns)), -2
	for i, c := range columns {
		header = append(header, c.name)
		widths[i] = text.StringWidth(c.name)
		for _, row := range rows {
			row[i] = clean(row[i])
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
		all += widths[i] + 2
	}
	width, _ := t.size()
	for _, least := range []func(column) int{func(c column) int { return c.enough }, func(c column) int { return c.some }} {
		for width > 0 && all > width {
			widest := -1
			for i, c := range columns {
				if least(c) > 0 && widths[i] > least(c) && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			all--
		}
	}
	w.AppendHeader(header)
	var configs []table.ColumnConfig
	for i, c := range columns {
		config := table.ColumnConfig{Number: i + 1, WidthMax: widths[i], WidthMaxEnforcer: c.cut}
		if c.cut == nil {
			config.WidthMaxEnforcer = middle
		}
		if c.right {
			config.Align, config.AlignHeader = text.AlignRight, text.AlignRight
		}
		configs = append(configs, config)
	}
	w.SetColumnConfigs(configs)
	for _, row := range rows {
		cells := table.Row{}
		for _, cell := range row {
			cells = append(cells, cell)
		}
		w.AppendRow(cells)
	}
	lines := strings.Split(w.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// end shortens a text at its end.
func end(s string, width int) string { return text.Snip(s, width, "…") }

// middle shortens a text in its middle: both ends of a key tell keys apart.
func middle(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
	}
	runes := []rune(s)
	head := (width - 1) / 2
	tail := width - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

// clean escapes the characters that a terminal would obey, or that have no width.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// span writes a duration as people read it.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
