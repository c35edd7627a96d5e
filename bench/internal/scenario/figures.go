package scenario

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// Outcome is what a scenario has measured.
type Outcome struct {
	Name     string
	Title    string // the work
	Rounds   int
	Subjects []string // the rows of the table
	Columns  []Column
	Ratios   []Ratio
	// Waits are the waits of the acquisitions of each subject, all rounds together; only of contests.
	Waits map[string][]time.Duration
}

// Column is one figure of the subjects.
type Column struct {
	Key     string // as "p50_us"
	Heading string // as "p50 µs"
	Values  Figures
}

// Figures are one figure of several subjects: a value for each subject and round.
type Figures map[string][]float64

func (f Figures) add(subject string, value float64) { f[subject] = append(f[subject], value) }

// Ratio compares two subjects by a figure.
type Ratio struct {
	Key     string // as "serial_vs_raw"
	Against string // the other subject
	Spread

	// The limit is the bar that this library sets itself: the median should be at least that, or at most.
	Sign  string // ≥ or ≤
	Limit float64

	column, subject string
}

func atMost(key string, limit float64, column, subject, against string) Ratio {
	return Ratio{Key: key, Against: against, Sign: "≤", Limit: limit, column: column, subject: subject}
}

func atLeast(key string, limit float64, column, subject, against string) Ratio {
	return Ratio{Key: key, Against: against, Sign: "≥", Limit: limit, column: column, subject: subject}
}

// Met reports whether the ratio meets its bar. One that is not a number does not.
func (r Ratio) Met() bool {
	if r.Sign == "≥" {
		return r.Median >= r.Limit
	}
	return r.Median <= r.Limit
}

// bestPeer, as Ratio.Against, is the other library with the highest median.
const bestPeer = "best peer"

// of computes the ratio round by round: on a machine of changing speed, only measurements of the same time
// compare.
func (r Ratio) of(columns []Column) Ratio {
	figure := columns[slices.IndexFunc(columns, func(c Column) bool { return c.Key == r.column })].Values
	if r.Against == bestPeer {
		peers := maps.Clone(figure)
		delete(peers, subject.Ours)
		delete(peers, subject.Raw)
		r.Against = slices.MaxFunc(slices.Collect(maps.Keys(peers)), func(a, b string) int {
			return cmp.Compare(SpreadOf(figure[a]).Median, SpreadOf(figure[b]).Median)
		})
	}
	values := slices.Clone(figure[r.subject])
	for i := range figure[r.Against] {
		values[i] /= figure[r.Against][i]
	}
	r.Spread = SpreadOf(values)
	return r
}

// Spread is the result of the rounds of one measurement: their median, and the range as a measure
// of trust.
type Spread struct{ Median, Min, Max float64 }

// SpreadOf returns the spread of the values, one per round. Of no values it is not a number.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// quantile returns the smallest of the times that at least the fraction q of them do not exceed
// (nearest rank). Without times it is 0.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
