package scenario

import (
	"time"

	"github.com/belugalock/belugalock/bench/internal/stats"
)

// Outcome is what a scenario has measured.
type Outcome struct {
	Name   string
	Title  string // the work
	Rounds int
	Rows   []Row
	Ratios []Ratio
	Notes  []string // what else is to be known
	// Waits are the waits of the acquisitions of each subject, all rounds together; only in the
	// scenario cross.
	Waits map[string][]time.Duration
	// Fair is the wait if all took turns and the lock cost nothing; only in the scenario cross.
	Fair time.Duration
}

// Row is what a scenario has measured of one subject.
type Row struct {
	Subject string
	Cells   []Cell
}

// Cell is one figure of one subject.
type Cell struct {
	Key     string // as "p50_us"
	Heading string // as "p50 µs"
	stats.Spread
}

// Ratio compares this library with something: by its key, as "serial_vs_raw".
type Ratio struct {
	Key     string
	Against string // what it was compared with
	stats.Spread
}

// Cell returns the figure of a subject with that key.
func (o *Outcome) Cell(subject, key string) (Cell, bool) {
	for _, r := range o.Rows {
		if r.Subject != subject {
			continue
		}
		for _, c := range r.Cells {
			if c.Key == key {
				return c, true
			}
		}
	}
	return Cell{}, false
}

// figures are one figure of several subjects: a value for each subject and round.
type figures map[string][]float64

func (f figures) add(subject string, value float64) { f[subject] = append(f[subject], value) }

// best returns the subject with the highest median, of those that are given.
func (f figures) best(subjects []string) (best string) {
	for _, s := range subjects {
		if best == "" || stats.Median(f[s]) > stats.Median(f[best]) {
			best = s
		}
	}
	return best
}

// column is a figure with its names, for all subjects.
type column struct {
	key, heading string
	values       figures
}

// rows puts columns side by side, one row per subject, and leaves out missing figures.
func rows(subjects []string, columns ...column) (rows []Row) {
	for _, s := range subjects {
		row := Row{Subject: s}
		for _, c := range columns {
			if values := c.values[s]; len(values) > 0 {
				row.Cells = append(row.Cells, Cell{c.key, c.heading, stats.SpreadOf(values)})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// ratio compares two rows of values, round by round.
func ratio(key, against string, above, below []float64) Ratio {
	return Ratio{key, against, stats.SpreadOf(stats.Ratios(above, below))}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
