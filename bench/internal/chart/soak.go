package chart

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

// panels are the charts of a soak, one above the other, by the columns of its file.
var panels = []struct {
	column, title string
	unit          float64
}{
	{"heap_bytes", "Go heap in use, MiB", 1 << 20},
	{"goroutines", "Goroutines", 1},
	{"redis_bytes", "Memory of Redis, MiB", 1 << 20},
	{"redis_keys", "Keys in Redis", 1},
}

// Soak draws the samples of a process and its Redis over the time of a soak, from its file (see
// internal/soak).
func Soak(file io.Reader) ([]byte, error) {
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) < 3 {
		return nil, errors.New("there are no two samples")
	}
	columns := map[string]int{}
	for i, name := range rows[0] {
		columns[name] = i
	}
	minutes, warmUp, err := times(rows[1:], columns)
	if err != nil {
		return nil, err
	}
	var plots [][]*plot.Plot
	for _, panel := range panels {
		curve := make(plotter.XYs, len(minutes))
		for i, row := range rows[1:] {
			value, err := number(row, columns, panel.column)
			if err != nil {
				return nil, err
			}
			curve[i] = plotter.XY{X: minutes[i], Y: value / panel.unit}
		}
		p, err := against(panel.title, curve, warmUp)
		if err != nil {
			return nil, err
		}
		plots = append(plots, []*plot.Plot{p})
	}
	plots[len(plots)-1][0].X.Label.Text = "minutes; the shaded ones are the warm-up"
	return svg(vg.Points(800), vg.Points(160*float64(len(plots))), func(c draw.Canvas) {
		tiles := draw.Tiles{Cols: 1, Rows: len(plots), PadY: vg.Points(14)}
		for i, row := range plot.Align(plots, tiles, c) {
			plots[i][0].Draw(row[0])
		}
	})
}

// times returns the minutes of the samples, and when the warm-up ended.
func times(rows [][]string, columns map[string]int) (minutes []float64, warmUp float64, err error) {
	phase, ok := columns["phase"]
	if !ok {
		return nil, 0, errors.New("there is no column phase")
	}
	for _, row := range rows {
		seconds, err := number(row, columns, "seconds")
		if err != nil {
			return nil, 0, err
		}
		minutes = append(minutes, seconds/60)
		if row[phase] == "warm-up" {
			warmUp = seconds / 60
		}
	}
	return minutes, warmUp, nil
}

func number(row []string, columns map[string]int, name string) (float64, error) {
	column, ok := columns[name]
	if !ok {
		return 0, fmt.Errorf("there is no column %s", name)
	}
	return strconv.ParseFloat(row[column], 64)
}

// against draws one curve against the time, from 0, so that growth looks as large as it is.
func against(title string, curve plotter.XYs, warmUp float64) (*plot.Plot, error) {
	p, err := newPlot(title)
	if err != nil {
		return nil, err
	}
	p.Title.TextStyle.Font.Size = vg.Points(12)
	p.Title.Padding = vg.Points(6)
	_, last, _, highest := plotter.XYRange(curve)
	p.X.Min, p.X.Max = 0, last
	p.Y.Min, p.Y.Max = 0, highest*1.15
	p.X.Padding, p.Y.Padding = 0, 0
	p.Y.Tick.Marker = fewTicks{}
	shade, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: 0}, {X: warmUp, Y: 0}, {X: warmUp, Y: p.Y.Max}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	shade.Color, shade.LineStyle.Width = pale, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	line, err := plotter.NewLine(curve)
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = colours[subject.Ours], vg.Points(1.5)
	p.Add(shade, grid, line)
	return p, nil
}

// fewTicks are as many as a low chart has room for.
type fewTicks struct{}

func (fewTicks) Ticks(low, high float64) []plot.Tick {
	step := roundUp((high - low) / 5)
	var ticks []plot.Tick
	for i := 0.0; i*step <= high; i++ {
		label := strconv.FormatFloat(i*step, 'f', -1, 64)
		if step >= 1 {
			label = stats.Thousands(i * step)
		}
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label})
	}
	return ticks
}
