// Package totals holds the weight of what surrounds the product.
package totals

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// limits are today's totals.
var limits = map[string]int{
	"lines of tests": 69416,
	"lines of Go without tests in internal/test, internal/repo, bench and examples": 13941,
	"words of README.md and docs": 45105,
	"words of CONTRIBUTING.md":    806,
	"mutants":                     1022,
}

var (
	mutant = regexp.MustCompile(`(?m)^mutant: `)
	tools  = regexp.MustCompile(`^(internal/(test|repo)|bench|examples)/.*\.go$`)
	words  = regexp.MustCompile(`^(README\.md|docs/.*\.md)$`)
)

// No total exceeds its limit. Lines count all lines, with comments.
func TestTotals_doNotGrow(t *testing.T) {
	totals := map[string]int{}
	err := fs.WalkDir(os.DirFS("../../.."), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		text, _ := os.ReadFile(filepath.Join("../../..", path)) // nothing of a directory
		lines := strings.Count(string(text), "\n")
		switch {
		case strings.HasSuffix(path, "_test.go"):
			totals["lines of tests"] += lines
		case tools.MatchString(path):
			totals["lines of Go without tests in internal/test, internal/repo, bench and examples"] += lines
		case words.MatchString(path):
			totals["words of README.md and docs"] += len(strings.Fields(string(text)))
		case path == "CONTRIBUTING.md":
			totals["words of CONTRIBUTING.md"] += len(strings.Fields(string(text)))
		case strings.Contains(path, "testdata/mutants/"):
			totals["mutants"] += len(mutant.FindAllIndex(text, -1))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, limit := range limits {
		if n := totals[what]; n > limit {
			t.Errorf("%s: %d, at most %d; lower the number when you delete, and say in the commit what a user gets for a raise",
				what, n, limit)
		}
	}
}
