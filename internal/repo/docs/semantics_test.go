package docs

import (
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of errors has every sentinel and every error type.
func TestErrors_everySentinelHasARow(t *testing.T) {
	text := ""
	for _, row := range Errors.Table(t) {
		text += row[0] + "\n"
	}
	for _, source := range []string{"distlock/errors.go", "lockedmemory/answer.go", "lockedmemory/turnid.go",
		"lockedmemory/sessionstore/errors.go", "distlock/pglock/fence.go", "distlock/pglock/txlock.go"} {
		for name := range Declared(t, filepath.Join(root, filepath.FromSlash(source))) {
			isError := token.IsExported(name) && (strings.HasPrefix(name, "Err") || strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Errors"))
			if name = path.Base(path.Dir(source)) + "." + name; isError && !strings.Contains(text, name) {
				t.Errorf("%s is not in the table of %s", name, Errors)
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
