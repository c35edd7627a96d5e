package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/stats"
	"github.com/belugalock/belugalock/bench/internal/subject"
)

func outcome(name string) *scenario.Outcome {
	o := &scenario.Outcome{Name: name, Title: "one key"}
	for i, s := range subject.Contended() {
		rate := 1000 * float64(i+1)
		cell := scenario.Cell{Key: "per_s", Spread: stats.Spread{Median: rate, Min: rate / 2, Max: rate * 2}}
		o.Rows = append(o.Rows, scenario.Row{Subject: s, Cells: []scenario.Cell{cell}})
	}
	return o
}

func TestWrite_drawsEveryChart(t *testing.T) {
	cross := outcome("cross")
	cross.Fair = 37 * time.Millisecond
	cross.Waits = map[string][]time.Duration{
		subject.Ours:    {0, time.Millisecond, 40 * time.Millisecond},
		subject.Redsync: {time.Microsecond, 5 * time.Second},
		subject.Bsm:     nil,
	}
	dir := t.TempDir()
	if err := Write(dir, []*scenario.Outcome{outcome("parallel"), outcome("local"), cross, {Name: "idle"}}); err != nil {
		t.Fatal(err)
	}
	for name, texts := range map[string][]string{
		"parallel.svg": {"One key", "acquisitions per second", "redsync", "4,000"},
		"local.svg":    {"belugalock"},
		"cross.svg":    {"rueidislock"},
		"waits.svg":    {"Waits: one key", "their other waiters starve:", "waited at most, ms", "share of acquisitions, %", "belugalock", "0.1", "1000"},
	} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, text := range texts {
			if !bytes.Contains(svg, []byte(">"+text+"<")) {
				t.Errorf("%s does not say %q", name, text)
			}
		}
		if !bytes.Contains(svg, []byte(family+fallback+";")) {
			t.Errorf("%s names no other fonts", name)
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 4 {
		t.Errorf("%d files, want 4", len(files))
	}
}

func TestCumulated_endsWithTheLongestWait(t *testing.T) {
	var sorted []time.Duration
	for i := range 1234 {
		sorted = append(sorted, time.Duration(i+1)*time.Millisecond)
	}
	curve := cumulated(sorted)
	if last := curve[len(curve)-1]; last.X != 1234 || last.Y != 100 {
		t.Errorf("it ends at %v", last)
	}
	if len(curve) > 2*points+1 {
		t.Errorf("it has %d points", len(curve))
	}
}

func TestRoundUp(t *testing.T) {
	for f, want := range map[float64]float64{1: 1, 37: 50, 1249: 2000, 5001: 10000} {
		if got := roundUp(f); got != want {
			t.Errorf("%v: %v, want %v", f, got, want)
		}
	}
}
