// Package docs holds the documentation to the code: the examples in README.md and docs compile, the
// program of the README prints what it says, tables and error texts are those of the library, and
// links lead somewhere.
//
// Its tests are those of the root module. A module that has a page of its own, because the code
// there needs what the root does not have, tests that with [ReadPage].
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root leads from the package under test to the directory of contract.work.
var root = func() string {
	dir := ".."
	for range 5 {
		if _, err := os.Stat(filepath.Join(dir, "contract.work")); err == nil {
			break
		}
		dir = filepath.Join("..", dir)
	}
	return dir
}()

// Page is one Markdown file.
type Page struct {
	name   string // relative to the root, with slashes
	lines  []string
	blocks []block
}

// block is a fenced code block.
type block struct {
	page   string
	line   int      // of its first line of code
	lang   string   // what follows the opening fence
	given  []string // names from the comment before it
	beluga bool     // it imports Beluga
	from   string   // the file of which it is a part
	text   string
}

// An HTML comment before a block names what the code expects to exist: <!-- given: ctx, locker -->.
// Code that imports Beluga has the comment <!-- beluga: ctx, mem -->, but for the page of which all
// code does.
var givenComment = regexp.MustCompile(`^<!-- (given|beluga): (.*) -->$`)

// The comment <!-- from: examples/recipes/cron/main.go --> names the program of which a block is a part.
var fromComment = regexp.MustCompile(`^<!-- from: (.*) -->$`)

const belugaPage = "docs/beluga.md"

// Pages reads README.md, docs/*.md and docs/dashboards/README.md.
func Pages(t testing.TB) []Page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no docs: %v", err)
	}
	var all []Page
	others := []string{filepath.Join(root, "README.md"), filepath.Join(root, "docs", "dashboards", "README.md")}
	for _, file := range append(others, files...) {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ReadPage(t, filepath.ToSlash(name)))
	}
	return all
}

// ReadPage reads a file that is named relative to the root.
func ReadPage(t testing.TB, name string) Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	p := Page{name: name, lines: strings.Split(string(text), "\n")}
	var given []string
	from := ""
	var open *block
	beluga := name == belugaPage
	for i, line := range p.lines {
		fence := strings.HasPrefix(line, "```")
		switch {
		case open != nil && fence:
			p.blocks = append(p.blocks, *open)
			open, given, from, beluga = nil, nil, "", name == belugaPage
		case open != nil:
			open.text += line + "\n"
		case fence:
			open = &block{page: name, line: i + 2, lang: strings.TrimPrefix(line, "```"), given: given, beluga: beluga, from: from}
		case givenComment.MatchString(line):
			comment := givenComment.FindStringSubmatch(line)
			given, beluga = strings.Split(comment[2], ", "), beluga || comment[1] == "beluga"
		case fromComment.MatchString(line):
			from = fromComment.FindStringSubmatch(line)[1]
		default:
			given, from, beluga = nil, "", name == belugaPage
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block is not closed", name, open.line)
	}
	return p
}

// section returns the blocks of one language below a heading, down to the next heading of its level or above.
func (p Page) section(t testing.TB, heading, lang string) []block {
	t.Helper()
	level := strings.IndexByte(heading, ' ')
	from, to := 0, len(p.lines)+1
	for i, line := range p.lines {
		switch hashes := strings.IndexByte(line, ' '); {
		case line == heading:
			from = i + 1
		case from > 0 && hashes > 0 && hashes <= level && strings.Trim(line[:hashes], "#") == "" && !p.inBlock(i+1):
			to = min(to, i+1)
		}
	}
	var found []block
	for _, b := range p.blocks {
		if from > 0 && b.line > from && b.line < to && b.lang == lang {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s: no %s block below %q", p.name, lang, heading)
	}
	return found
}

func (p Page) inBlock(line int) bool {
	for _, b := range p.blocks {
		if line >= b.line && line < b.line+strings.Count(b.text, "\n") {
			return true
		}
	}
	return false
}

// Table returns the rows of the first table below a heading, without its head, with the backquotes taken off.
func (p Page) Table(t testing.TB, heading string) [][]string {
	t.Helper()
	var rows [][]string
	below := false
	for _, line := range p.lines {
		switch {
		case line == heading:
			below = true
		case below && strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i, cell := range cells {
				cells[i] = strings.TrimSpace(cell)
				if text := strings.Trim(cells[i], "`"); !strings.Contains(text, "`") {
					cells[i] = text
				}
			}
			rows = append(rows, cells)
		case len(rows) > 0:
			return rows[2:]
		}
	}
	if len(rows) < 3 {
		t.Fatalf("%s: no table below %q", p.name, heading)
	}
	return rows[2:]
}

// Texts returns the blocks of one language.
func (p Page) Texts(lang string) []string {
	var texts []string
	for _, b := range p.blocks {
		if b.lang == lang {
			texts = append(texts, b.text)
		}
	}
	return texts
}
