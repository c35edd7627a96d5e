// Package chart draws the measurements as SVG files.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"codeberg.org/go-fonts/dejavu/dejavusans"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

// Write draws the outcomes that have a chart, and writes them into dir: parallel.svg, local.svg,
// cross.svg, waits.svg.
func Write(dir string, outcomes []*scenario.Outcome) error {
	for _, o := range outcomes {
		charts, err := chartsOf(o)
		if err != nil {
			return fmt.Errorf("chart of %s: %w", o.Name, err)
		}
		for name, svg := range charts {
			if err := os.WriteFile(filepath.Join(dir, name), svg, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// chartsOf returns the charts of an outcome by the names of their files.
func chartsOf(o *scenario.Outcome) (map[string][]byte, error) {
	charts := map[string][]byte{}
	switch o.Name {
	case "parallel", "local", "cross":
		svg, err := throughput(o)
		if err != nil {
			return nil, err
		}
		charts[o.Name+".svg"] = svg
	}
	if len(o.Waits) > 0 {
		svg, err := waits(o)
		if err != nil {
			return nil, err
		}
		charts["waits.svg"] = svg
	}
	return charts, nil
}

// Readers who see few colours can tell these apart (Okabe and Ito, "Color Universal Design", 2008).
var colours = map[string]color.Color{
	subject.Ours:        color.RGBA{0, 114, 178, 255},
	subject.Bsm:         color.RGBA{230, 159, 0, 255},
	subject.BsmEager:    color.RGBA{213, 94, 0, 255},
	subject.Redsync:     color.RGBA{0, 158, 115, 255},
	subject.Rueidislock: color.RGBA{204, 121, 167, 255},
	subject.Raw:         grey,
	subject.Ideal:       grey,
}

var (
	grey  = color.RGBA{130, 130, 130, 255}
	faint = color.RGBA{225, 225, 225, 255}
	pale  = color.RGBA{243, 243, 243, 255}
)

// fallback names other fonts for the letters. The layout is computed with DejaVu Sans because it is
// wider than most: if a viewer lacks it, the letters of another font still fit.
const (
	family   = "font-family:DejaVu Sans"
	fallback = ",Verdana,Arial,Helvetica,sans-serif"
)

var typeface = sync.OnceValues(func() (font.Typeface, error) {
	const name = "DejaVu"
	face, err := opentype.Parse(dejavusans.TTF)
	if err != nil {
		return name, err
	}
	font.DefaultCache.Add([]font.Face{{Font: font.Font{Typeface: name, Variant: "Sans"}, Face: face}})
	return name, nil
})

// newPlot returns an empty chart with a title.
func newPlot(title string) (*plot.Plot, error) {
	face, err := typeface()
	if err != nil {
		return nil, err
	}
	p := plot.New()
	sans := func(size vg.Length) font.Font { return font.Font{Typeface: face, Variant: "Sans", Size: size} }
	p.Title.Text = strings.ToUpper(title[:1]) + title[1:]
	p.Title.Padding = vg.Points(14)
	p.Title.TextStyle.Font = sans(14)
	p.Legend.TextStyle.Font = sans(11)
	p.Legend.Padding = vg.Points(5)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(11)
		axis.Label.Padding = vg.Points(8)
		axis.Tick.Label.Font = sans(11)
		axis.LineStyle.Color = grey
		axis.Tick.LineStyle.Color = grey
	}
	return p, nil
}

const margin = 16 // around each chart, in points

// svg lets paint fill a white canvas, but for a margin, and returns it.
func svg(width, height vg.Length, paint func(draw.Canvas)) ([]byte, error) {
	c := vgsvg.New(width, height)
	canvas := draw.New(c)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	paint(draw.Crop(canvas, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(b.Bytes(), []byte(family), []byte(family+fallback)), nil
}
