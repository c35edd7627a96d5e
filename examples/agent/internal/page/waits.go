package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
)

// The parts of the picture of waits from top to bottom, in CSS pixels.
const (
	waitsHead   = 30 // the name of a run
	waitsHeight = 96 // the highest column
	waitsGap    = 16
)

// perDecade is how many columns there are from 1 ms to 10 ms, and so on.
const perDecade = 5

// gap is the share between two columns.
const gap = 0.004

// waits is a picture of how long turns waited for the lock in each run: how many waited how long,
// on a log axis.
type waits struct {
	Rows         []waitsRow
	Percentiles  []report.Row
	Names        []string // of the runs, for the percentiles
	Ticks        []tick
	Height, Foot int
	Most         int // turns of the highest column
	Story        string
}

type waitsRow struct {
	Name     string
	Turns    int
	Median   string
	MedianX  share
	Text     int // the base line of the name
	Top, End int
	Columns  []column
}

type column struct {
	X, Width share
	Y, Tall  float64
	Title    string
}

// waitsOf is nil if no turn used the lock.
func waitsOf(runs []*report.Result) *waits {
	w := &waits{}
	shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
	for _, r := range runs {
		if all := r.Waits(); len(all) > 0 {
			shortest, longest = min(shortest, all[0]), max(longest, all[len(all)-1])
		}
	}
	if shortest == math.MaxInt64 {
		return nil
	}
	axis := logAxisOf(shortest, longest)
	w.Ticks = axis.ticks()
	counts := map[*report.Result][]int{}
	for _, r := range runs {
		counts[r] = make([]int, axis.columns())
		for _, wait := range r.Waits() {
			i := axis.column(wait)
			counts[r][i]++
			w.Most = max(w.Most, counts[r][i])
		}
	}
	var story []string
	y := 0
	for _, r := range runs {
		all := r.Waits()
		if len(all) == 0 {
			continue
		}
		w.Names = append(w.Names, r.Locked.Name())
		median := report.Percentile(all, 50)
		row := waitsRow{Name: r.Locked.Name(), Turns: len(all), Median: report.Milliseconds(median), MedianX: axis.place(median),
			Text: y + 18, Top: y + waitsHead, End: y + waitsHead + waitsHeight}
		for i, n := range counts[r] {
			if n == 0 {
				continue
			}
			tall := max(1, waitsHeight*float64(n)/float64(w.Most))
			from, to := axis.edge(i), axis.edge(i+1)
			row.Columns = append(row.Columns, column{axis.place(from) + gap/2, axis.place(to) - axis.place(from) - gap, float64(row.End) - tall, tall,
				fmt.Sprintf("%s to %s: %d of %d turns", label(from), label(to), n, len(all))})
		}
		w.Rows = append(w.Rows, row)
		y = row.End + waitsGap
		story = append(story, fmt.Sprintf("%s: of %d turns half waited for at most %s, 99 %% for at most %s, and all for at most %s.", row.Name, len(all),
			row.Median, report.Milliseconds(report.Percentile(all, 99)), report.Milliseconds(report.Percentile(all, 100))))
	}
	w.Foot = y - waitsGap
	w.Height = w.Foot + axisFoot
	w.Story = strings.Join(story, " ")
	for _, p := range []struct {
		name    string
		percent int
	}{{"median", 50}, {"90 % waited at most", 90}, {"99 % waited at most", 99}, {"longest", 100}} {
		row := report.Row{Name: p.name}
		for _, r := range runs {
			if all := r.Waits(); len(all) > 0 {
				row.Cells = append(row.Cells, report.Cell{Text: report.Milliseconds(report.Percentile(all, p.percent))})
			}
		}
		w.Percentiles = append(w.Percentiles, row)
	}
	return w
}
