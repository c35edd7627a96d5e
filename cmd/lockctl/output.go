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
	name  string
	right bool
	least int  // the width to which it is cut in a narrow terminal; 0: it is not cut
	first bool // it is cut before the others
	spare bool // it is left out before any is cut
}

// tabulate draws rows. If they are wider than the terminal, spare columns are left out. Then columns are
// cut in their middle, the widest first. A row that is still too wide loses its end.
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
		narrow(columns, widths, width)
	}
	var lines []string
	for _, row := range rows {
		var cells []string
		for i, c := range columns {
			align := text.AlignLeft
			if c.right {
				align = text.AlignRight
			}
			if widths[i] > 0 {
				cells = append(cells, align.Apply(shorten(row[i], widths[i]), widths[i]))
			}
		}
		line := strings.TrimRight(strings.Join(cells, "  "), " ")
		if width > 0 {
			line = text.Snip(line, width, "…")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// narrow takes from the widths of columns until a row fits, or each has its least width. A width of 0
// leaves the column out.
func narrow(columns []column, widths []int, width int) {
	over := -2 - width
	for _, w := range widths {
		over += w + 2
	}
	for i, c := range columns {
		if c.spare && over > 0 {
			over -= widths[i] + 2
			widths[i] = 0
		}
	}
	for _, first := range []bool{true, false} {
		for ; over > 0; over-- {
			widest := -1
			for i, c := range columns {
				if c.first == first && c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
}

// wrap breaks a text at words for the terminal. The lines after the first are indented.
func (t *tool) wrap(s string, indent int) string {
	if width, _ := t.size(); width > 2*indent {
		s = text.WrapSoft(s, width-indent)
	}
	var lines []string
	for line := range strings.SplitSeq(s, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}

// shorten cuts a text in its middle: both ends of a key tell keys apart.
func shorten(s string, width int) string {
	if text.StringWidth(s) <= width {
		return s
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
