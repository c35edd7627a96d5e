package page

import (
	"math"
	"strconv"
	"time"
)

// tick is a line across a picture, and the time that stands beside it.
type tick struct {
	X     share
	Label string
}

// pieces is how many parts an axis has at most, so that its labels stay apart on a phone.
const pieces = 5

// step returns a round time, 1, 2, 2.5 or 5 with noughts, which divides a span into most pieces at
// the most.
func step(span time.Duration, most int) time.Duration {
	least := float64(max(span, 1)) / float64(most)
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if d := time.Duration(math.Ceil(factor * power)); float64(d) >= least {
			return d
		}
	}
	return time.Duration(math.Ceil(10 * power))
}

// ticks divides a picture of a span into most pieces at the most. What would touch the right edge
// has no label.
func ticks(span time.Duration, most int) (marks []tick) {
	for at, by := time.Duration(0), step(span, most); at <= span; at += by {
		t := tick{X: share(at) / share(max(span, 1)), Label: label(at)}
		if t.X > 0.91 { // "150 ms" takes 17 % of the picture on a phone
			t.Label = ""
		}
		marks = append(marks, t)
	}
	return marks
}

// label writes a round time, as short as it can be.
func label(d time.Duration) string {
	unit, name := time.Millisecond, " ms"
	switch {
	case d == 0:
		return "0"
	case d >= time.Second:
		unit, name = time.Second, " s"
	}
	return strconv.FormatFloat(float64(d)/float64(unit), 'f', -1, 64) + name
}

// logAxis is an axis on which 1 ms is as far from 10 ms as 10 ms from 100 ms. It has whole decades.
type logAxis struct{ from, to int } // powers of ten of a nanosecond

// logAxisOf returns an axis with both durations on it. Durations below 10 µs stand at its left
// edge.
func logAxisOf(shortest, longest time.Duration) logAxis {
	from := int(math.Floor(math.Log10(float64(max(shortest, 10*time.Microsecond)))))
	to := int(math.Floor(math.Log10(float64(max(longest, 10*time.Microsecond))))) + 1
	return logAxis{from, to}
}

func (a logAxis) columns() int { return (a.to - a.from) * perDecade }

// edge is where column i begins, in two digits.
func (a logAxis) edge(i int) time.Duration {
	digits := math.Round(math.Pow(10, float64(i%perDecade)/perDecade) * 10)
	return time.Duration(digits * math.Pow10(a.from+i/perDecade-1))
}

// column is the column of a duration.
func (a logAxis) column(d time.Duration) int {
	i := 0
	for i+1 < a.columns() && d >= a.edge(i+1) {
		i++
	}
	return i
}

func (a logAxis) place(d time.Duration) share {
	at := (math.Log10(float64(max(d, 1))) - float64(a.from)) / float64(a.to-a.from)
	return share(min(1, max(0, at)))
}

// ticks marks the decades. The last one, at the right edge, has no label. Nor has the first one if
// the second one is so close that the labels touch on a phone.
func (a logAxis) ticks() (marks []tick) {
	for power := a.from; power <= a.to; power++ {
		d := time.Duration(math.Pow10(power))
		t := tick{X: a.place(d), Label: label(d)}
		if power == a.to || power == a.from && a.to-a.from > 4 {
			t.Label = ""
		}
		marks = append(marks, t)
	}
	return marks
}
