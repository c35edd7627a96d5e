package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/belugalock/belugalock/bench/internal/scenario"
)

// writeTables writes tables for each scenario and one of the ratios.
func writeTables(w io.Writer, about string, outcomes []*scenario.Outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	fmt.Fprintf(t, "%s\nMedians of the rounds, and from the lowest to the highest round.\n", about)
	for _, o := range outcomes {
		columns := slices.DeleteFunc(slices.Clone(o.Columns), func(c scenario.Column) bool { return len(c.Values) == 0 })
		fmt.Fprintf(t, "\n%s: %s; rounds: %d\n", o.Name, o.Title, o.Rounds)
		heads := []string{""}
		for _, c := range columns {
			heads = append(heads, c.Heading)
		}
		row(heads...)
		for _, name := range o.Subjects {
			line := []string{name}
			for _, c := range columns {
				if line = append(line, ""); c.Values[name] != nil {
					line[len(line)-1] = show(scenario.SpreadOf(c.Values[name]))
				}
			}
			row(line...)
		}
	}
	missed := 0
	fmt.Fprintln(t, "\nratios")
	for _, o := range outcomes {
		for _, ratio := range o.Ratios {
			verdict := "met"
			if !ratio.Met() {
				verdict = "missed"
				missed++
			}
			row(ratio.Key, ratio.Against, show(ratio.Spread), ratio.Sign+" "+short(ratio.Limit), verdict)
		}
	}
	fmt.Fprintf(t, "bars missed: %d\n", missed)
	return t.Flush()
}

// show writes a median with its range.
func show(s scenario.Spread) string {
	return fmt.Sprintf("%s (%s–%s)", short(s.Median), short(s.Min), short(s.Max))
}

// short writes a number with three digits, or all of a whole one.
func short(f float64) string {
	if f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
