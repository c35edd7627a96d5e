// Command panelchart draws the panels of the dashboard from the data of a run; make pictures runs it:
//
//	go run ./panelchart panels.json panels.svg
package main

import (
	"fmt"
	"os"

	"github.com/belugalock/belugalock/bench/internal/chart"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./panelchart panels.json panels.svg")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "panelchart:", err)
		os.Exit(1)
	}
}

// draw writes the picture, if the data can be read.
func draw(data, svg string) error {
	file, err := os.Open(data)
	if err != nil {
		return err
	}
	defer file.Close()
	drawn, err := chart.Panels(file)
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	return os.WriteFile(svg, drawn, 0o644)
}
