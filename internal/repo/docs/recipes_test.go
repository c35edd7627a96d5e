package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each block that names a program stands in the program, also at a deeper indent.
func TestDocs_quotesStandInTheirPrograms(t *testing.T) {
	t.Parallel()
	quotes := 0
	for _, p := range Pages(t) {
		for _, b := range p.blocks {
			if b.from == "" {
				continue
			}
			quotes++
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.from)))
			if err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
				continue
			}
			if !quoted(string(text), b.text) {
				t.Errorf("%s:%d: the block is no part of %s", b.page, b.line, b.from)
			}
		}
	}
	t.Logf("%d quotes", quotes)
}

// Each recipe is short, and stands on the page with a link and a quote.
func TestRecipes_shortAndOnThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob(filepath.Join(root, "examples", "recipes", "*", "main.go"))
	if err != nil || len(programs) == 0 {
		t.Fatalf("%d recipes, %v", len(programs), err)
	}
	for _, program := range programs {
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		name := "examples/recipes/" + filepath.Base(filepath.Dir(program)) + "/main.go"
		if lines := strings.Count(string(text), "\n"); lines > 120 {
			t.Errorf("%s has %d lines, more than 120", name, lines)
		}
		for _, want := range []string{"](../" + name + ")", "<!-- from: " + name + " -->"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("docs/recipes.md lacks %s", want)
			}
		}
	}
}

// quoted reports whether whole lines of a program are those of a block, which may be indented less.
func quoted(program, block string) bool {
	for range 4 {
		if strings.Contains("\n"+program, "\n"+block) {
			return true
		}
		lines := strings.SplitAfter(block, "\n")
		for i, line := range lines {
			if strings.TrimSpace(line) != "" {
				lines[i] = "\t" + line
			}
		}
		block = strings.Join(lines, "")
	}
	return false
}
