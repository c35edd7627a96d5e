//go:build browser

package browsertest

import (
	"context"
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

// TestPage is one test, because its parts share a browser and a run of the example.
func TestPage(t *testing.T) {
	chromium := browser(t)
	chaos := begin(t, "-turns", "20", "-sessions", "2", "-chaos") // takes the longest
	waited := begin(t, "-turns", "40", "-sessions", "2")()
	t.Run("isWhatTheTerminalSays", func(t *testing.T) { isWhatTheTerminalSays(t, chromium, waited) })
	t.Run("isWhatTheTerminalSaysIfNobodyWaited", func(t *testing.T) {
		isWhatTheTerminalSays(t, chromium, begin(t, "-turns", "5", "-sessions", "1", "-instances", "1")())
	})
	t.Run("isFoundBrokenIfItIs", func(t *testing.T) { everyCheckFinds(t, chromium, waited) })
	t.Run("isWhatTheTerminalSaysUnderChaos", func(t *testing.T) { isWhatTheTerminalSays(t, chromium, chaos()) })
}

// isWhatTheTerminalSays looks at a page in every view.
func isWhatTheTerminalSays(t *testing.T, chromium context.Context, r *run) {
	file := put(t, r.page)
	for _, v := range views {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			o := look(t, chromium, file, v)
			for _, check := range slices.Sorted(maps.Keys(checks)) {
				for _, problem := range checks[check](o, r) {
					t.Errorf("%s: %s", check, problem)
				}
			}
		})
	}
}
