package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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
}

// tabulate draws rows.
func tabulate(columns []column, rows [][]string) string {
	header, widths := []string{}, make([]int, len(columns))
	for _, c := range columns {
		header = append(header, c.name)
	}
	rows = slices.Insert(rows, 0, header)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var lines []string
	for _, row := range rows {
		var cells []string
		for i, c := range columns {
			width := widths[i]
			if !c.right {
				width = -width // fmt pads on the right
			}
			cells = append(cells, fmt.Sprintf("%*s", width, row[i]))
		}
		lines = append(lines, strings.TrimRight(strings.Join(cells, "  "), " "))
	}
	return strings.Join(lines, "\n")
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
