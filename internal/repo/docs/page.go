// Package docs holds the documentation to the code: examples compile, programs print their output,
// tables and error texts are those of the library, and links lead somewhere. places.go names the
// section that each test reads.
//
// The tests are those of the root module. Another module, whose code needs what the root does not have,
// tests its own [Place].
package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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
	runBy  string   // the test that runs its commands
	text   string
}

// An HTML comment before a block names the variables that the code uses: <!-- given: ctx, locker -->.
// Before code that imports Beluga, the comment is <!-- beluga: ctx, mem -->. On a page beluga.md, all
// code imports Beluga.
var givenComment = regexp.MustCompile(`^<!-- (given|beluga): (.*) -->$`)

// The comment <!-- from: examples/recipes/cron/main.go --> names the program of which a block is a part.
var fromComment = regexp.MustCompile(`^<!-- from: (.*) -->$`)

// Pages reads the pages for users: README.md, and docs without docs/design and docs/reports.
func Pages(t testing.TB) []Page {
	t.Helper()
	return slices.DeleteFunc(AllPages(t), func(p Page) bool { return !forUsers(p.name) })
}

func forUsers(page string) bool {
	dir, _, _ := strings.Cut(strings.TrimPrefix(page, "docs/"), "/")
	return page == "README.md" || strings.HasPrefix(page, "docs/") && dir != "design" && dir != "reports"
}

// AllPages reads all pages: those of the root, of docs and of the examples.
func AllPages(t testing.TB) []Page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []Page
	for _, file := range files {
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readPage(t, filepath.ToSlash(name)))
	}
	return all
}

// readPage reads a file that is named relative to the root.
func readPage(t testing.TB, name string) Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	p := Page{name: name, lines: strings.Split(string(text), "\n")}
	var given []string
	from, runBy := "", ""
	var open *block
	beluga := path.Base(name) == "beluga.md"
	for i, line := range p.lines {
		fence := strings.HasPrefix(line, "```")
		switch {
		case open != nil && fence:
			p.blocks = append(p.blocks, *open)
			open, given, from, runBy, beluga = nil, nil, "", "", path.Base(name) == "beluga.md"
		case open != nil:
			open.text += line + "\n"
		case fence:
			open = &block{page: name, line: i + 2, lang: strings.TrimPrefix(line, "```"), given: given, beluga: beluga, from: from, runBy: runBy}
		case givenComment.MatchString(line):
			comment := givenComment.FindStringSubmatch(line)
			given, beluga = strings.Split(comment[2], ", "), beluga || comment[1] == "beluga"
		case fromComment.MatchString(line):
			from = fromComment.FindStringSubmatch(line)[1]
		case runByComment.MatchString(line):
			runBy = runByComment.FindStringSubmatch(line)[1]
		default:
			given, from, runBy, beluga = nil, "", "", path.Base(name) == "beluga.md"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block is not closed", name, open.line)
	}
	return p
}

// section returns the lines of a heading and of the next heading of its level or above. An empty
// heading is the whole page.
func (p Page) section(t testing.TB, heading string) (from, to int) {
	t.Helper()
	to = len(p.lines) + 1
	if heading == "" {
		return 0, to
	}
	level := strings.IndexByte(heading, ' ')
	for i, line := range p.lines {
		switch hashes := strings.IndexByte(line, ' '); {
		case line == heading:
			from = i + 1
		case from > 0 && hashes > 0 && hashes <= level && strings.Trim(line[:hashes], "#") == "" && !p.inBlock(i+1):
			to = min(to, i+1)
		}
	}
	if from == 0 {
		t.Fatalf("%s has no heading %q", p.name, heading)
	}
	return from, to
}

func (p Page) inBlock(line int) bool {
	for _, b := range p.blocks {
		if line >= b.line && line < b.line+strings.Count(b.text, "\n") {
			return true
		}
	}
	return false
}

func (p Page) table(t testing.TB, heading string) [][]string {
	t.Helper()
	var rows [][]string
	below := heading == ""
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
