// Package docs holds the documentation to the code: examples compile, programs print their output,
// tables and error texts are those of the library, and links lead somewhere.
//
// The tests are those of the root module. Another module, whose code needs what the root does not have,
// tests its own [Place].
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
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
	page     string
	line     int               // of its first line of code
	lang     string            // the word after the opening fence
	comments map[string]string // the HTML comments before it
	text     string
	output   string // the blocks of the language output that follow
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// HTML comments before a block:
//
//	<!-- given: ctx, locker -->                     the variables that the code uses
//	<!-- beluga: ctx, mem -->                       the same, and the code imports Beluga
//	<!-- from: examples/recipes/cron/main.go -->    the program of which the block is a part
//	<!-- run by: TestName -->                       the test that runs the commands, or the program
var comment = regexp.MustCompile(`^<!-- (given|beluga|from|run by): (.*) -->$`)

// allPages reads all pages of the repository.
func allPages(t testing.TB) (all []Page) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			all = append(all, readPage(t, name))
		}
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

// Pages reads the pages for users: README.md, and docs without docs/design and docs/reports.
func Pages(t testing.TB) (found []Page) {
	t.Helper()
	for _, p := range allPages(t) {
		if p.forUsers() {
			found = append(found, p)
		}
	}
	return found
}

func (p Page) forUsers() bool {
	dir, _, _ := strings.Cut(strings.TrimPrefix(p.name, "docs/"), "/")
	return p.name == "README.md" || strings.HasPrefix(p.name, "docs/") && dir != "design" && dir != "reports"
}

// readPage reads a file that is named relative to the root.
func readPage(t testing.TB, name string) Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return newPage(t, name, strings.Split(string(text), "\n"))
}

func newPage(t testing.TB, name string, lines []string) Page {
	t.Helper()
	p := Page{name: name, lines: lines}
	comments := map[string]string{}
	var open *block
	for i, line := range p.lines {
		lang, fence := strings.CutPrefix(line, "```")
		switch found := comment.FindStringSubmatch(line); {
		case open != nil && fence:
			if last := len(p.blocks) - 1; open.lang == "output" && last >= 0 {
				p.blocks[last].output += open.text
			} else {
				p.blocks = append(p.blocks, *open)
			}
			open = nil
		case open != nil:
			open.text += line + "\n"
		case fence:
			open = &block{page: name, line: i + 2, lang: lang, comments: comments}
			comments = map[string]string{}
		case found != nil:
			comments[found[1]] = found[2]
		default:
			clear(comments)
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block is not closed", name, open.line)
	}
	return p
}

// blocks returns the blocks of one language.
func blocks(pages []Page, lang string) (found []block) {
	for _, p := range pages {
		for _, b := range p.blocks {
			if b.lang == lang {
				found = append(found, b)
			}
		}
	}
	return found
}

// text yields the lines outside of blocks, with their numbers.
func (p Page) text(yield func(line int, text string) bool) {
	inBlock := false
	for i, line := range p.lines {
		if fence := strings.HasPrefix(line, "```"); fence || inBlock {
			inBlock = inBlock != fence
		} else if !yield(i+1, line) {
			return
		}
	}
}

var backquoted = regexp.MustCompile("``([^`]|`[^`])+``|`[^`]+`")

// inlineCode yields the texts in backquotes outside of blocks.
func (p Page) inlineCode(yield func(line int, text string) bool) {
	for line, text := range p.text {
		for _, found := range backquoted.FindAllString(text, -1) {
			if !yield(line, strings.TrimSpace(strings.Trim(found, "`"))) {
				return
			}
		}
	}
}

var heading = regexp.MustCompile(`^#+ `)

// headings yields the headings, with their lines.
func (p Page) headings(yield func(line int, text string) bool) {
	for line, text := range p.text {
		if heading.MatchString(text) && !yield(line, text) {
			return
		}
	}
}
