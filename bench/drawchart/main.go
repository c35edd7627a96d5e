// Command drawchart draws a chart from the data of a run. make soak draws the samples of a soak, and
// make pictures the panels of the dashboard:
//
//	go run ./drawchart soak samples.csv chart.svg
//	go run ./drawchart panels panels.json panels.svg
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/belugalock/belugalock/bench/internal/chart"
)

var charts = map[string]func(io.Reader) ([]byte, error){"soak": chart.Soak, "panels": chart.Panels}

func main() {
	if len(os.Args) != 4 || charts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go run ./drawchart soak|panels data chart.svg")
		os.Exit(2)
	}
	if err := draw(charts[os.Args[1]], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "drawchart:", err)
		os.Exit(1)
	}
}

// draw writes the chart, if the data can be read.
func draw(chart func(io.Reader) ([]byte, error), data, svg string) error {
	file, err := os.Open(data)
	if err != nil {
		return err
	}
	defer file.Close()
	drawn, err := chart(file)
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	return os.WriteFile(svg, drawn, 0o644)
}
