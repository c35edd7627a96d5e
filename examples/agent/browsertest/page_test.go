//go:build browser

package browsertest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func put(t *testing.T, page string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPage is one test, because its parts share a browser. What the page says is tested in its package.
func TestPage(t *testing.T) {
	chromium := browser(t)
	for name, args := range map[string][]string{
		"waited": {"-turns", "40", "-sessions", "2"},
		"alone":  {"-turns", "5", "-sessions", "1", "-instances", "1"},
		"chaos":  {"-turns", "20", "-sessions", "2", "-chaos"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := put(t, example(t, args...))
			for _, v := range views {
				t.Run(v.String(), func(t *testing.T) {
					t.Parallel()
					o := look(t, chromium, file, v)
					for _, check := range slices.Sorted(maps.Keys(checks)) {
						for _, problem := range checks[check](o) {
							t.Errorf("%s: %s", check, problem)
						}
					}
				})
			}
		})
	}
}
