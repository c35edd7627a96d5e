// Package chart draws curves as SVG files: panels of them, side by side. With flags, its test draws the panels
// of the dashboard, for make pictures.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"maps"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel is a chart with one or more curves.
type Panel struct {
	Title, Unit string
	Series      []Series
}

// Series is one curve of a panel.
type Series struct {
	Name   string
	Points [][2]float64
}

// Panels draws the panels of a dashboard over seconds, from a JSON array of [Panel].
func Panels(data []byte) ([]byte, error) {
	var panels []Panel
	if err := json.Unmarshal(data, &panels); err != nil {
		return nil, err
	}
	return draws(panels, 3, "seconds", plot.LinearScale{})
}

// Waits draws, for every subject, the share of acquisitions that waited at most so long. The curve
// of a fair lock rises at once, where all waiters take turns. A lock that starves some begins left
// of it, and ends far right.
func Waits(waits map[string][]time.Duration) ([]byte, error) {
	const shortest = 100 * time.Microsecond // what waits less does not wait
	ms := func(d time.Duration) float64 { return float64(max(d, shortest)) / float64(time.Millisecond) }
	panel := Panel{Title: "Share of acquisitions that waited at most so long", Unit: "%"}
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		curve := [][2]float64{{ms(0), 0}}
		sorted := slices.Sorted(slices.Values(waits[name]))
		for percent := 1; percent <= 100 && len(sorted) > 0; percent++ {
			x := ms(sorted[(percent*len(sorted)+99)/100-1])
			curve = append(curve, [2]float64{x, float64(percent - 1)}, [2]float64{x, float64(percent)}) // a step
		}
		panel.Series = append(panel.Series, Series{name, curve})
	}
	return draws([]Panel{panel}, 1, "ms", plot.LogScale{})
}

// Readers who see few colours can tell these apart (Okabe and Ito, "Color Universal Design", 2008).
var colours = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{130, 130, 130, 255}, color.Black, color.RGBA{86, 180, 233, 255},
}

// draws draws the panels, with so many beside each other.
func draws(panels []Panel, across int, unit string, scale plot.Normalizer) ([]byte, error) {
	if len(panels) == 0 {
		return nil, errors.New("there are no panels")
	}
	plot.DefaultFont.Variant = "Sans"
	var rows [][]*plot.Plot
	for some := range slices.Chunk(panels, across) {
		row := make([]*plot.Plot, across)
		for i, panel := range some {
			var err error
			if row[i], err = panel.plot(unit, scale); err != nil {
				return nil, fmt.Errorf("%s: %w", panel.Title, err)
			}
		}
		rows = append(rows, row)
	}
	c := vgsvg.New(vg.Points(max(800, 360*float64(across))), vg.Points(max(400, 230*float64(len(rows)))))
	canvas := draw.New(c)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	tiles := draw.Tiles{
		Cols: across, Rows: len(rows), PadX: 18, PadY: 16, PadTop: 16, PadRight: 16, PadBottom: 16, PadLeft: 16,
	}
	for i, row := range plot.Align(rows, tiles, canvas) {
		for j, tile := range row {
			if rows[i][j] != nil {
				rows[i][j].Draw(tile)
			}
		}
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	family := []byte("font-family:Liberation Sans") // other fonts for viewers that lack it
	return bytes.ReplaceAll(b.Bytes(), family, append(family, ",Arial,Helvetica,sans-serif"...)), nil
}

// plot returns the curves of a panel, from 0, so that growth looks as large as it is.
func (panel Panel) plot(unit string, scale plot.Normalizer) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = panel.Title, unit
	if panel.Unit != "" {
		p.Title.Text += ", " + panel.Unit
	}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(4)
	p.Add(plotter.NewGrid())
	for i, series := range panel.Series {
		var curve plotter.XYs
		for _, at := range series.Points {
			curve = append(curve, plotter.XY{X: at[0], Y: at[1]})
		}
		if len(curve) == 0 {
			continue
		}
		line, err := plotter.NewLine(curve)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colours[i%len(colours)], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(series.Name, line)
	}
	if p.X.Max <= p.X.Min {
		return nil, errors.New("there are no data")
	}
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Scale = scale
	if _, ok := scale.(plot.LogScale); ok {
		p.X.Tick.Marker = plot.LogTicks{Prec: -1}
	}
	p.Y.Min = 0
	p.Y.Max = max(p.Y.Max, 0.001) * (1.15 + 0.1*float64(len(panel.Series))) // the legend stands above the curves
	return p, nil
}
