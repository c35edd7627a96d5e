// Command soakchart draws the chart of a soak from the samples that it has written; make soak runs both:
//
//	go run ./soakchart samples.csv chart.svg
package main

import (
	"fmt"
	"os"

	"github.com/belugalock/belugalock/bench/internal/chart"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./soakchart samples.csv chart.svg")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "soakchart:", err)
		os.Exit(1)
	}
}

// draw writes the chart, if the samples can be read.
func draw(samples, svg string) error {
	file, err := os.Open(samples)
	if err != nil {
		return err
	}
	defer file.Close()
	drawn, err := chart.Soak(file)
	if err != nil {
		return fmt.Errorf("%s: %w", samples, err)
	}
	return os.WriteFile(svg, drawn, 0o644)
}
