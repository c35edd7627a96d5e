package chart

import (
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/belugalock/belugalock/bench/internal/scenario"
)

const (
	// shortest is the left end of the axis: what waits less does not wait.
	shortest = 100 * time.Microsecond
	// points are enough for a curve to look as if it had all.
	points = 300
)

// starved explains the left ends of the curves.
const starved = `The medians of the polling
libraries are low because
their other waiters starve:
the releaser takes the lock
again at once. The starved
waiters are the right ends
of these curves.`

// waits draws, for every subject, the share of acquisitions that waited at most so long. The curve
// of a fair lock rises at once, where all waiters take turns. A lock that starves some begins left
// of it, and ends far right.
func waits(o *scenario.Outcome) ([]byte, error) {
	p, err := newPlot("Waits: " + o.Title)
	if err != nil {
		return nil, err
	}
	p.X.Label.Text = "waited at most, ms"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = decades{}
	p.Y.Label.Text = "share of acquisitions, %"
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 100, Label: "100"}}
	p.X.Padding, p.Y.Padding = 0, 0
	legend := p.Legend // beside the plot, not in it, where the curves are
	legend.Top, legend.Left = true, true

	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	longest := o.Fair
	for _, row := range o.Rows {
		if sorted := slices.Sorted(slices.Values(o.Waits[row.Subject])); len(sorted) > 0 {
			line, err := plotter.NewLine(cumulated(sorted))
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = colours[row.Subject], vg.Points(2)
			p.Add(line)
			legend.Add(row.Subject, line)
			longest = max(longest, sorted[len(sorted)-1])
		}
	}
	p.X.Min, p.X.Max = ms(shortest), roundUp(ms(longest))
	line, err := fair(o.Fair)
	if err != nil {
		return nil, err
	}
	p.Add(line)
	legend.Add("all in turn, at no cost", line)
	const beside = 190
	return svg(vg.Points(800), vg.Points(420), func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 0, -vg.Points(beside), 0, 0))
		side := draw.Crop(c, c.Max.X-c.Min.X-vg.Points(beside-16), 0, 0, -vg.Points(36))
		legend.Draw(side)
		note := legend.TextStyle
		note.YAlign = text.YTop
		side.FillText(note, vg.Point{X: side.Min.X, Y: side.Max.Y - vg.Points(130)}, starved)
	})
}

// cumulated returns the empirical distribution function of sorted waits.
func cumulated(sorted []time.Duration) plotter.XYs {
	curve := plotter.XYs{{X: ms(shortest), Y: 0}}
	n := len(sorted)
	for i := range min(n, points) {
		last := (i+1)*n/min(n, points) - 1
		x, y := ms(max(shortest, sorted[last])), 100*float64(last+1)/float64(n)
		curve = append(curve, plotter.XY{X: x, Y: curve[len(curve)-1].Y}, plotter.XY{X: x, Y: y}) // a step
	}
	return curve
}

// fair marks what a wait would be if all took turns and the lock cost nothing.
func fair(wait time.Duration) (*plotter.Line, error) {
	line, err := plotter.NewLine(plotter.XYs{{X: ms(wait), Y: 0}, {X: ms(wait), Y: 100}})
	if err != nil {
		return nil, err
	}
	line.Color, line.Dashes, line.Width = grey, []vg.Length{vg.Points(5), vg.Points(4)}, vg.Points(1.5)
	return line, nil
}

// roundUp returns the end of an axis that reaches to f: 1, 2 or 5 times a power of ten.
func roundUp(f float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(f)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= f {
			return digit * power
		}
	}
	return 10 * power
}

// decades labels a logarithmic axis at its powers of ten, without exponents.
type decades struct{}

func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for decade := math.Floor(math.Log10(low)); decade <= math.Log10(high)+0.01; decade++ {
		value := math.Pow(10, decade)
		if value >= low*0.99 {
			ticks = append(ticks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'f', -1, 64)})
		}
		for i := 2.0; i < 10; i++ {
			if v := i * value; v > low && v < high {
				ticks = append(ticks, plot.Tick{Value: v})
			}
		}
	}
	return ticks
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
