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
