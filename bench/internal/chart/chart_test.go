package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
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

func TestCharts_sayWhatTheyShow(t *testing.T) {
	waits := func([]byte) ([]byte, error) {
		return Waits(map[string][]time.Duration{"fair": {0, time.Millisecond, 40 * time.Millisecond}, "unfair": {1, 5 * time.Second}, "none": nil})
	}
	for _, c := range []struct {
		draw  func([]byte) ([]byte, error)
		data  string
		texts []string
	}{
		{Panels, panels, []string{"wait for a lock, s", "p50", "p99", "lost leases", "conflicts", "seconds"}},
		{waits, "", []string{"Share of acquisitions that waited at most so long, %", "fair", "unfair", "ms"}},
	} {
		svg, err := c.draw([]byte(c.data))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.texts {
			if !bytes.Contains(svg, []byte(">"+text+"<")) {
				t.Errorf("a chart does not say %q", text)
			}
		}
		if !bytes.Contains(svg, []byte("Liberation Sans,Arial,")) {
			t.Error("a chart names no other fonts")
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}
