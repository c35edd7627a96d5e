package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

func terminalWidth() int {
	width, _, _ := term.GetSize(int(os.Stdout.Fd()))
	return width
}

func terminalHeight() int {
	_, height, _ := term.GetSize(int(os.Stdout.Fd()))
	return height
}

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
	name    string
	right   bool
	shrinks bool // it is cut in the middle if the terminal is narrow
}

// tabulate draws rows. In a terminal, columns that shrink share what the others leave.
func (t *tool) tabulate(columns []column, rows [][]string) string {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	w.SetStyle(style)
	header, widths, fixed, shrinking := table.Row{}, make([]int, len(columns)), 0, 0
	for i, c := range columns {
		header = append(header, c.name)
		widths[i] = text.StringWidth(c.name)
		for _, row := range rows {
			widths[i] = max(widths[i], text.StringWidth(clean(row[i])))
		}
		fixed += 2
		if c.shrinks {
			shrinking++
		} else {
			fixed += widths[i]
		}
	}
	w.AppendHeader(header)
	var configs []table.ColumnConfig
	room := t.width - fixed + 2
	for i, c := range columns {
		config := table.ColumnConfig{Number: i + 1, WidthMax: widths[i], WidthMaxEnforcer: cut}
		if c.right {
			config.Align, config.AlignHeader = text.AlignRight, text.AlignRight
		}
		if c.shrinks && t.width > 0 {
			config.WidthMax = min(widths[i], max(room/shrinking, 8))
			room -= config.WidthMax
			shrinking--
		}
		configs = append(configs, config)
	}
	w.SetColumnConfigs(configs)
	for _, row := range rows {
		cells := table.Row{}
		for _, cell := range row {
			cells = append(cells, clean(cell))
		}
		w.AppendRow(cells)
	}
	lines := strings.Split(w.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// cut shortens a text in its middle: both ends of a key tell keys apart.
func cut(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
	}
	runes := []rune(s)
	head := (width - 1) / 2
	tail := width - 1 - head
	return string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

// clean shows control characters, which a terminal would obey.
func clean(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
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
