package release

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The licences that users may combine with MIT, and with closed programs.
var permissive = []string{"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC"}

func TestLicences_areListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs/licences.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+\.\S+) \| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
		if !slices.Contains(permissive, row[2]) {
			t.Errorf("%s has the licence %s, which is not one of %q", row[1], row[2], permissive)
		}
	}
	compiled := strings.Fields(run(t, root(t), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}",
		"./distlock/...", "./lockedmemory/...", "./tracing/...", "./cmd/..."))
	slices.Sort(compiled)
	compiled = slices.Compact(compiled)
	within := func(module string) func(string) bool {
		return func(row string) bool { return row == module || strings.HasPrefix(row, module+"/") }
	}
	for _, module := range compiled {
		if !slices.ContainsFunc(listed, within(module)) {
			t.Errorf("%s is not listed: run make licences", module)
		}
	}
	for _, row := range listed {
		if !slices.ContainsFunc(compiled, func(module string) bool { return within(module)(row) }) {
			t.Errorf("%s is listed, but no package compiles it: run make licences", row)
		}
	}
}
