package docs

import (
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tables of errors have every sentinel and every error type.
func TestErrors_everySentinelHasARow(t *testing.T) {
	for _, c := range []struct {
		source, prefix string
		place          Place
	}{
		{"distlock/errors.go", "", LockErrors},
		{"lockedmemory/sessionstore/errors.go", "sessionstore.", StoreErrors},
	} {
		text := ""
		for _, row := range c.place.Table(t) {
			text += row[0] + "\n"
		}
		for name := range Declared(t, filepath.Join(root, filepath.FromSlash(c.source))) {
			isError := strings.HasPrefix(name, "Err") || strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Errors")
			if isError && token.IsExported(name) && !strings.Contains(text, c.prefix+name) {
				t.Errorf("%s is not in the table of %s", name, c.place)
			}
		}
	}
}

// The tests that the pages name are there.
func TestDocs_testsThatAreNamedExist(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		sources.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, p := range AllPages(t) {
		for i, line := range p.lines {
			for _, name := range testName.FindAllStringSubmatch(line, -1) {
				named++
				if !strings.Contains(sources.String(), "func "+name[1]+"(t *testing.T)") && !strings.Contains(sources.String(), `"`+name[1]+`"`) {
					t.Errorf("%s:%d: there is no test %s", p.name, i+1, name[1])
				}
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}

// A test, or a part of a suite, in backquotes.
var testName = regexp.MustCompile("`((?:Test[A-Z]\\w*|[A-Z]\\d?)_\\w+)`")
