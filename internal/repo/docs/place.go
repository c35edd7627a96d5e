package docs

import (
	"strings"
	"testing"
)

// Place is a section of a page.
type Place struct{ Page, Heading string }

// These places are compared with the code in several packages.
var (
	Errors     = Place{"docs/reference/errors.md", "## Errors"}
	FirstLook  = Place{"docs/operations/runbook.md", "## First look"}
	LockRights = Place{"docs/reference/keys-and-rights.md", "## Rights for locks"}
	LogLines   = Place{"docs/howto/tracing-and-metrics.md", "## Log lines"}
	Metrics    = Place{"docs/howto/tracing-and-metrics.md", "## Metrics"}
)

// section returns the part of the page from the heading to the next one of its level or above.
func (p Place) section(t testing.TB) Page {
	t.Helper()
	page := readPage(t, p.Page)
	from, to := 0, len(page.lines)
	for line, text := range page.headings {
		switch {
		case text == p.Heading:
			from = line
		case from > 0 && strings.IndexByte(text, ' ') <= strings.IndexByte(p.Heading, ' '):
			to = min(to, line-1)
		}
	}
	if from == 0 {
		t.Fatalf("%s has no heading %q", p.Page, p.Heading)
	}
	return newPage(t, p.Page, page.lines[from:to])
}

// Table returns the rows of the first table of the place, without its head. Backquotes around a whole
// cell are taken off.
func (p Place) Table(t testing.TB) (rows [][]string) {
	t.Helper()
	for _, line := range p.section(t).text {
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
			if text := strings.Trim(cells[i], "`"); !strings.Contains(text, "`") {
				cells[i] = text
			}
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("%s: no table below %q", p.Page, p.Heading)
	}
	return rows[2:]
}

// Blocks returns the texts of the blocks of one language in the place. There is at least one.
func (p Place) Blocks(t testing.TB, lang string) (texts []string) {
	t.Helper()
	for _, b := range blocks([]Page{p.section(t)}, lang) {
		texts = append(texts, b.text)
	}
	if len(texts) == 0 {
		t.Fatalf("%s: no %s block below %q", p.Page, lang, p.Heading)
	}
	return texts
}
