// Package stats makes few numbers of many.
package stats

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Spread is the result of the rounds of one measurement: their median, and the range as a measure
// of trust.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of the values, one per round. Of no values it is not a number.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values)}
}

// Median returns the middle value, or the mean of the two in the middle. Of no values it is not a
// number.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// Quantile returns the smallest of the times that at least the fraction q of them do not exceed
// (nearest rank). Without times it is 0.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Ratios divides the values of each round: on a machine of changing speed, only measurements of the
// same time compare. It leaves out a round in which both are 0.
func Ratios(above, below []float64) (ratios []float64) {
	for i := range min(len(above), len(below)) {
		if r := above[i] / below[i]; !math.IsNaN(r) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// Thousands writes a whole number with commas between its thousands.
func Thousands(f float64) string {
	s := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
