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
