package chart

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/stats"
)

// throughput draws the acquisitions per second of every subject as bars. The length is the median;
// a line over the end is the range of the rounds.
func throughput(o *scenario.Outcome) ([]byte, error) {
	p, err := newPlot(o.Title)
	if err != nil {
		return nil, err
	}
	p.X.Label.Text = "acquisitions per second"
	p.X.Min = 0
	p.Y.Padding = 0
	p.Y.LineStyle.Width = 0
	p.Y.Tick.LineStyle.Width, p.Y.Tick.Length = 0, vg.Points(6) // a gap

	n := len(o.Rows)
	names := make([]plot.Tick, n)
	var ends plotter.XYs
	var values []string
	var ranges extents
	longest := 0.0
	for i, row := range o.Rows {
		at := float64(n - 1 - i) // the first at the top
		names[i] = plot.Tick{Value: at, Label: row.Subject}
		cell, _ := o.Cell(row.Subject, "per_s")
		bar, err := plotter.NewBarChart(plotter.Values{cell.Median}, vg.Points(24))
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, at, 0
		bar.Color = colours[row.Subject]
		p.Add(bar)
		ranges.XYs = append(ranges.XYs, plotter.XY{X: cell.Median, Y: at})
		ranges.XErrors = append(ranges.XErrors, struct{ Low, High float64 }{cell.Min - cell.Median, cell.Max - cell.Median})
		ends = append(ends, plotter.XY{X: cell.Max, Y: at})
		values = append(values, stats.Thousands(cell.Median))
		longest = math.Max(longest, cell.Max)
	}
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	p.X.Max = longest * 1.15 // room for the last figure
	p.X.Tick.Marker = roundTicks{}

	bars, err := plotter.NewXErrorBars(ranges)
	if err != nil {
		return nil, err
	}
	bars.CapWidth = vg.Points(8)
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: ends, Labels: values})
	if err != nil {
		return nil, err
	}
	labels.Offset = vg.Point{X: vg.Points(8), Y: vg.Points(1.5)}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font = p.X.Tick.Label.Font
		labels.TextStyle[i].YAlign = text.YCenter
	}
	p.Add(bars, labels)
	return svg(vg.Points(680), vg.Points(110+38*float64(n)), p.Draw)
}

// extents are bars with their ranges.
type extents struct {
	plotter.XYs
	plotter.XErrors
}

// roundTicks labels the axis with whole numbers, thousands apart.
type roundTicks struct{}

func (roundTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = stats.Thousands(t.Value)
		}
	}
	return ticks
}
