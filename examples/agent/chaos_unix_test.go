//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkChaos is what every good run with chaos shows.
func checkChaos(t *testing.T, got outcome, messages int) {
	t.Helper()
	checkReport(t, got, messages)
	killed, paused, again := got.row(t, "instances killed"), got.row(t, "instances paused"), got.row(t, "delivered again")
	for i := range killed {
		if killed[i] != 5 || paused[i] != 5 || again[i] < killed[i] {
			t.Errorf("in run %d, %d were killed, %d paused, and %d messages delivered again", i, killed[i], paused[i], again[i])
		}
	}
	if refused := got.last(t, "stale writes refused"); refused == 0 || refused > paused[2] {
		t.Errorf("the store refused %d stale writes of %d paused instances", refused, paused[2])
	}
	if lost := got.row(t, "lost"); lost[0] == 0 || lost[1] == 0 {
		t.Errorf("%d messages were lost with killed instances without a lock, and %d with a lock around Save alone", lost[0], lost[1])
	}
	if strings.Contains(got.stderr, "WARN") {
		t.Errorf("stderr is\n%s", got.stderr)
	}
}

// chaos are flags of a short run. With so many conversations, some go on beside a paused instance.
var chaos = []string{"-chaos", "-instances", "6", "-sessions", "6", "-turns", "12"}

func TestAgent_S2_chaosDoesNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.html")
	finish := begin(t, program(t, append(chaos, "-report", path)...))
	t.Parallel() // only now: for most of its time the run waits, and takes nothing from others
	checkChaos(t, finish(), 6*12)
	if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "instances killed") {
		t.Errorf("the page does not speak of it; error %v", err)
	}
}
