package matrix

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The page lists the faults that are tested, and where, no more and no less.
func TestReliabilityPage_listsTheFaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reports/faults-2026-11.md")
	if err != nil {
		t.Fatal(err)
	}
	listed, tested := make(map[string]string), make(map[string]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) == 6 && strings.HasPrefix(cells[1], " `") {
			listed[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	for _, row := range rows {
		tested[row.name] = strings.Join(row.on, ", ")
	}
	if !maps.Equal(listed, tested) {
		t.Errorf("the page lists\n%q\nand tested are\n%q", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(tested)))
	}
}
