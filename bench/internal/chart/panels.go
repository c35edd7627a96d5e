package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/belugalock/belugalock/bench/internal/subject"
)

// Panel is one panel of a dashboard, with the data that a query returned.
type Panel struct {
	Title, Unit string
	Series      []Series
}

// Series is one curve of a panel.
type Series struct {
	Name   string
	Points [][2]float64 // seconds since the start of the run, and the value
}

const across = 3 // panels beside each other

// curves are the colours of the series of a panel, in their order.
var curves = []color.Color{
	colours[subject.Ours], colours[subject.Bsm], colours[subject.BsmEager], colours[subject.Redsync], colours[subject.Rueidislock],
	grey, color.Black, color.RGBA{86, 180, 233, 255},
}

// Panels draws the panels of a dashboard side by side, from a JSON array of [Panel].
func Panels(file io.Reader) ([]byte, error) {
	var panels []Panel
	if err := json.NewDecoder(file).Decode(&panels); err != nil {
		return nil, err
	}
	if len(panels) == 0 {
		return nil, errors.New("there are no panels")
	}
	down := (len(panels) + across - 1) / across
	plots := make([][]*plot.Plot, down)
	for i := range plots {
		plots[i] = make([]*plot.Plot, across)
	}
	for i, panel := range panels {
		p, err := panelPlot(panel)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", panel.Title, err)
		}
		if i+across >= len(panels) { // none is below
			p.X.Label.Text = "seconds"
		}
		plots[i/across][i%across] = p
	}
	return svg(vg.Points(1080), vg.Points(230*float64(down)), func(c draw.Canvas) {
		tiles := draw.Tiles{Cols: across, Rows: down, PadX: vg.Points(18), PadY: vg.Points(16)}
		for i, row := range plot.Align(plots, tiles, c) {
			for j, canvas := range row {
				if plots[i][j] != nil {
					plots[i][j].Draw(canvas)
				}
			}
		}
	})
}

// panelPlot draws the curves of one panel, from 0.
func panelPlot(panel Panel) (*plot.Plot, error) {
	title := panel.Title
	if panel.Unit != "" {
		title += ", " + panel.Unit
	}
	p, err := newPlot(title)
	if err != nil {
		return nil, err
	}
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(12), vg.Points(6)
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(9), vg.Points(1)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(4)
	p.Legend.ThumbnailWidth = vg.Points(12)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	highest, last, drawn := 0.0, 0.0, 0
	for i, series := range panel.Series {
		var curve plotter.XYs
		for _, at := range series.Points {
			if !math.IsNaN(at[1]) {
				curve = append(curve, plotter.XY{X: at[0], Y: at[1]})
				highest, last = math.Max(highest, at[1]), math.Max(last, at[0])
			}
		}
		if len(curve) == 0 {
			continue
		}
		line, err := plotter.NewLine(curve)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = curves[i%len(curves)], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(series.Name, line)
		drawn++
	}
	if drawn == 0 {
		return nil, errors.New("there are no data")
	}
	p.X.Min, p.X.Max = 0, last
	// The legend stands above the curves.
	p.Y.Min, p.Y.Max = 0, math.Max(highest, 0.001)*(1.15+0.13*float64(drawn))
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = fewTicks{}, short{}
	return p, nil
}

// short labels an axis like fewTicks, without the digits that floating point adds.
type short struct{}

func (short) Ticks(low, high float64) []plot.Tick {
	ticks := fewTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if t.Value < 1000 {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 3, 64)
		}
	}
	return ticks
}
