package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

// columns is how many of them the time axis takes.
const columns = 43

// NobodyWaited stands in the place of a waterfall.
const NobodyWaited = "No turn had to wait for another one, so there are no spans to show."

// waterfall draws the spans of a turn that had to wait, and above them those of the turn in its
// way. It takes at most width columns.
func waterfall(w io.Writer, finished []spans.Span) {
	scene, ok := Clearest(finished)
	if !ok {
		fmt.Fprintln(w, NobodyWaited)
		return
	}
	fmt.Fprintln(w, Paragraph(fmt.Sprintf("A turn of %s that had to wait (░), and above it the turn of %s in its way:",
		scene.Waiter[0].Instance, scene.Holder[0].Instance)))
	drawTurn(w, scene.Holder, scene.Start, scene.End)
	drawTurn(w, scene.Waiter, scene.Start, scene.End)
}

// drawTurn draws a span per row.
func drawTurn(w io.Writer, turn []spans.Span, start, end time.Time) {
	fmt.Fprintln(w, turn[0].Instance)
	column := func(t time.Time) int { return int(t.Sub(start) * columns / max(1, end.Sub(start))) }
	for _, s := range turn {
		from, to := column(s.Start), column(s.End)
		block := "█"
		if Waits(s) {
			block = "░"
		}
		bar := strings.Repeat(" ", from) + strings.Repeat(block, to-from)
		if from == to { // shorter than a column
			bar = strings.Repeat(" ", min(from, columns-1)) + "▏"
		}
		fmt.Fprintf(w, "  %-22s │%-*s│%10s\n", s.Name, columns, bar, Milliseconds(s.End.Sub(s.Start)))
	}
}
