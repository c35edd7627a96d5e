package chart

import (
	"bytes"
	"strings"
	"testing"
)

const panelData = `[
{"Title": "wait for a lock", "Unit": "s", "Series": [{"Name": "p50", "Points": [[0, 0.5], [10, 1.5]]}, {"Name": "p99", "Points": [[0, 2], [10, 4]]}]},
{"Title": "lost leases", "Series": [{"Name": "redis", "Points": [[0, 0], [10, 1200]]}]},
{"Title": "held leases", "Series": [{"Name": "held", "Points": [[0, 0], [10, 0]]}]},
{"Title": "conflicts", "Series": [{"Name": "all", "Points": [[0, 1], [10, 2]]}]}]`

func TestPanels(t *testing.T) {
	svg, err := Panels(strings.NewReader(panelData))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Wait for a lock, s", "p50", "p99", "Lost leases", "Held leases", "Conflicts", "seconds", "1,000"} {
		if !bytes.Contains(svg, []byte(">"+text+"<")) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}

func TestPanels_refusesAnEmptyPanel(t *testing.T) {
	for name, file := range map[string]string{
		"no panels": "[]",
		"no JSON":   "panels",
		"no series": `[{"Title": "lost leases"}]`,
		"no points": `[{"Title": "lost leases", "Series": [{"Name": "redis"}]}]`,
	} {
		if svg, err := Panels(strings.NewReader(file)); err == nil {
			t.Errorf("%s: %d bytes were drawn", name, len(svg))
		}
	}
}
