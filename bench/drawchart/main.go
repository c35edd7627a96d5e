// Command drawchart draws the panels of the dashboard, for make pictures:
//
//	go run ./drawchart panels.json panels.svg
package main

import (
	"fmt"
	"os"

	"github.com/belugalock/belugalock/bench/internal/chart"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./drawchart panels.json panels.svg")
		os.Exit(2)
	}
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		data, err = chart.Panels(data)
	}
	if err == nil {
		err = os.WriteFile(os.Args[2], data, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drawchart: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
