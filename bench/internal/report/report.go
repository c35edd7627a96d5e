// Package report shows the measurements: to people as tables, to programs as JSON.
package report

import (
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/stats"
)

// Report is one run.
type Report struct {
	Time     time.Time
	Took     time.Duration
	Go       string // version
	Redis    string // version
	Postgres string // version; empty: not used
	CPUs     int
	Pace     string // quick or full
	Outcomes []*scenario.Outcome
}

// Missed returns the ratios that miss their bar.
func (r *Report) Missed() (missed []scenario.Ratio) {
	for _, o := range r.Outcomes {
		for _, ratio := range o.Ratios {
			if bar, ok := barOf(ratio.Key); ok && !bar.Met(ratio) {
				missed = append(missed, ratio)
			}
		}
	}
	return missed
}

type scenarioJSON struct {
	Title    string                           `json:"title"`
	Rounds   int                              `json:"rounds"`
	Subjects map[string]map[string]spreadJSON `json:"subjects"`
	Notes    []string                         `json:"notes,omitempty"`
}

type ratioJSON struct {
	spreadJSON
	Against string  `json:"against,omitempty"`
	Limit   float64 `json:"limit"`
	Bar     string  `json:"bar"` // "at most" or "at least" the limit
	Met     bool    `json:"met"`
}

// spreadJSON leaves out a NaN, which JSON does not know.
type spreadJSON struct {
	Median *float64 `json:"median"`
	Min    *float64 `json:"min"`
	Max    *float64 `json:"max"`
}

func spreadOf(s stats.Spread) spreadJSON {
	return spreadJSON{number(s.Median), number(s.Min), number(s.Max)}
}

func number(f float64) *float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}

// WriteJSON writes the report as one object. The medians of the ratios stand at its top, by their
// keys, so that two runs compare easily; "ratios" has their ranges and bars, "scenarios" the
// figures of every subject.
func (r *Report) WriteJSON(w io.Writer) error {
	ratios, scenarios := map[string]ratioJSON{}, map[string]scenarioJSON{}
	object := map[string]any{
		"time":        r.Time.UTC().Format(time.RFC3339),
		"took_s":      math.Round(r.Took.Seconds()),
		"go":          r.Go,
		"redis":       r.Redis,
		"postgres":    r.Postgres,
		"cpus":        r.CPUs,
		"pace":        r.Pace,
		"ratios":      ratios,
		"scenarios":   scenarios,
		"bars_missed": len(r.Missed()),
	}
	for _, o := range r.Outcomes {
		subjects := map[string]map[string]spreadJSON{}
		for _, row := range o.Rows {
			cells := map[string]spreadJSON{}
			for _, c := range row.Cells {
				cells[c.Key] = spreadOf(c.Spread)
			}
			subjects[row.Subject] = cells
		}
		scenarios[o.Name] = scenarioJSON{o.Title, o.Rounds, subjects, o.Notes}
		for _, ratio := range o.Ratios {
			object[ratio.Key] = number(ratio.Median)
			bar, _ := barOf(ratio.Key)
			ratios[ratio.Key] = ratioJSON{spreadOf(ratio.Spread), ratio.Against, bar.Limit, bar.side(), bar.Met(ratio)}
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(object)
}

func (b Bar) side() string {
	if b.AtLeast {
		return "at least"
	}
	return "at most"
}
