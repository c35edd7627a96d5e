package chart

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

const panels = `[
{"Title": "wait for a lock", "Unit": "s", "Series": [{"Name": "p50", "Points": [[0, 0.5], [10, 1.5]]}, {"Name": "p99", "Points": [[0, 2], [10, 4]]}]},
{"Title": "lost leases", "Series": [{"Name": "redis", "Points": [[0, 0], [10, 1200]]}, {"Name": "none"}]},
{"Title": "held leases", "Series": [{"Name": "held", "Points": [[0, 0], [10, 0]]}]},
{"Title": "conflicts", "Series": [{"Name": "all", "Points": [[0, 1], [10, 2]]}]}]`

var (
	from = flag.String("panels", "", "the `file` with the data of the panels that are drawn")
	to   = flag.String("svg", "", "the `file` that receives the drawn panels")
)

func TestPanels_ofAFileBecomeAFile(t *testing.T) {
	if *from == "" {
		dir := t.TempDir()
		*from, *to = filepath.Join(dir, "panels.json"), filepath.Join(dir, "panels.svg")
		if err := os.WriteFile(*from, []byte(panels), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(*from)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := Panels(data)
	if err := errors.Join(err, os.WriteFile(*to, svg, 0o644)); err != nil {
		t.Error(err)
	}
}
