package check

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// write writes what each panel shows of the run.
func (r run) write(t *testing.T, name string) {
	type series struct {
		Name   string
		Points [][2]float64
	}
	type recorded struct {
		Title, Unit string
		Series      []series
	}
	units := map[string]string{"s": "s", "ops": "per second", "short": ""}
	var all []recorded
	for _, p := range readDashboard(t).Panels {
		panel := recorded{Title: p.Title, Unit: units[p.FieldConfig.Defaults.Unit]}
		for _, q := range p.Targets {
			value, _, _, err := r.QueryRange(t.Context(), filled(q.Expr, "10s"),
				promv1.Range{Start: r.began, End: time.Now(), Step: time.Second})
			must(t, err)
			for _, stream := range value.(model.Matrix) {
				one := series{Name: q.LegendFormat}
				for label, value := range stream.Metric {
					one.Name = strings.ReplaceAll(one.Name, "{{"+string(label)+"}}", string(value))
				}
				for _, sample := range stream.Values {
					if !math.IsNaN(float64(sample.Value)) { // JSON has no NaN
						one.Points = append(one.Points, [2]float64{sample.Timestamp.Time().Sub(r.began).Seconds(), float64(sample.Value)})
					}
				}
				panel.Series = append(panel.Series, one)
			}
		}
		all = append(all, panel)
	}
	text, err := json.Marshal(all)
	must(t, err)
	must(t, os.WriteFile(name, text, 0o600))
}
