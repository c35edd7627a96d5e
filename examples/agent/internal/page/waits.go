package page

import (
	"fmt"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// The parts of the picture of waits from top to bottom, in CSS pixels.
const (
	waitsTop    = 30 // the name of the axis
	waitsHeight = 150
)

// gap is the share between two columns.
const gap = 0.004

// waits is a picture of how long turns waited for the lock: how many waited how long.
type waits struct {
	Turns       int
	Percentiles []percentile
	Top, Foot   int
	Height      int
	Columns     []column
	Ticks       []tick
	Most        int // how many turns the highest column stands for
	Story       string
}

type percentile struct{ Name, Wait string }

type column struct {
	X, Width share
	Y, Tall  float64
	Title    string
}

// waitsOf takes the sorted waits.
func waitsOf(sorted []time.Duration) *waits {
	if len(sorted) == 0 {
		return nil
	}
	w := &waits{Turns: len(sorted), Top: waitsTop, Foot: waitsTop + waitsHeight, Height: waitsTop + waitsHeight + axisFoot}
	for _, p := range []struct {
		name    string
		percent int
	}{{"median", 50}, {"90 % waited at most", 90}, {"99 % waited at most", 99}, {"longest", 100}} {
		w.Percentiles = append(w.Percentiles, percentile{p.name, report.Milliseconds(report.Percentile(sorted, p.percent))})
	}
	longest := sorted[len(sorted)-1]
	by := step(longest, 20)
	counts := make([]int, longest/by+1)
	for _, wait := range sorted {
		counts[wait/by]++
		w.Most = max(w.Most, counts[wait/by])
	}
	end := by * time.Duration(len(counts))
	for i, n := range counts {
		if n == 0 {
			continue
		}
		tall := waitsHeight * float64(n) / float64(w.Most)
		from := by * time.Duration(i)
		w.Columns = append(w.Columns, column{share(i)/share(len(counts)) + gap/2, 1/share(len(counts)) - gap, float64(w.Foot) - tall, tall,
			fmt.Sprintf("%s to %s: %d of %d turns", label(from), label(from+by), n, w.Turns)})
	}
	w.Ticks = ticks(end, 6)
	w.Story = fmt.Sprintf("Of %d turns half waited for at most %s, 90 %% for at most %s, 99 %% for at most %s, and all for at most %s.",
		w.Turns, w.Percentiles[0].Wait, w.Percentiles[1].Wait, w.Percentiles[2].Wait, w.Percentiles[3].Wait)
	return w
}
