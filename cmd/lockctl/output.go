package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

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
	name             string
	right            bool
	compact, minimum int  // the widths to which it shrinks in a narrow terminal; 0: it does not
	tail             bool // it loses its end instead of its middle
}

// tabulate draws rows. If they are wider than the terminal, the widest columns shrink: all to their
// compact width first, then to their minimum. A row that is still too wide loses its end.
func (t *tool) tabulate(columns []column, rows [][]string) string {
	header, widths := []string{}, make([]int, len(columns))
	for _, c := range columns {
		header = append(header, c.name)
	}
	rows = slices.Insert(rows, 0, header)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
	}
	width, _ := t.size()
	if width > 0 {
		shrink(widths, width, func(i int) int { return columns[i].compact })
		shrink(widths, width, func(i int) int { return columns[i].minimum })
	}
	var lines []string
	for _, row := range rows {
		for i, c := range columns {
			align := text.AlignLeft
			if c.right {
				align = text.AlignRight
			}
			row[i] = align.Apply(shorten(row[i], widths[i], c.tail), widths[i])
		}
		line := strings.TrimRight(strings.Join(row, "  "), " ")
		if width > 0 {
			line = shorten(line, width, true)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// shrink takes from the widest columns until the row fits, or each has its least width.
func shrink(widths []int, width int, least func(i int) int) {
	all := 2 * (len(widths) - 1)
	for _, w := range widths {
		all += w
	}
	for ; all > width; all-- {
		widest := -1
		for i, w := range widths {
			if least(i) > 0 && w > least(i) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// shorten cuts a text at its end, or in its middle: both ends of a key tell keys apart.
func shorten(s string, width int, atEnd bool) string {
	if atEnd || text.StringWidth(s) <= width {
		return text.Snip(s, width, "…")
	}
	head, tail := text.Trim(s, (width-1)/2), []rune(s)
	for text.StringWidth(string(tail)) > width-1-text.StringWidth(head) {
		tail = tail[1:]
	}
	return head + "…" + string(tail)
}

// pairs writes a name and a value in each line. Lines without a value are left out.
func pairs(rows ...[2]string) string {
	var lines []string
	for _, row := range rows {
		if row[1] != "" {
			lines = append(lines, fmt.Sprintf("%-9s %s", row[0], clean(row[1])))
		}
	}
	return strings.Join(lines, "\n")
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
