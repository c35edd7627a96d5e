// Command drawchart draws a chart from the data of a run. It draws the samples of a soak, and
// make pictures the panels of the dashboard:
//
//	go run ./drawchart soak samples.csv chart.svg
//	go run ./drawchart panels panels.json panels.svg
package main

import (
	"fmt"
	"os"

	"github.com/belugalock/belugalock/bench/internal/chart"
)

var charts = map[string]func(data []byte) ([]byte, error){"soak": chart.Soak, "panels": chart.Panels}

func main() {
	if len(os.Args) != 4 || charts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go run ./drawchart soak|panels data chart.svg")
		os.Exit(2)
	}
	data, err := os.ReadFile(os.Args[2])
	if err == nil {
		data, err = charts[os.Args[1]](data)
	}
	if err == nil {
		err = os.WriteFile(os.Args[3], data, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drawchart: %s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}
