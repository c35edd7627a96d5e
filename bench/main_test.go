package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
)

func TestMain(m *testing.M) {
	child.Serve(scenario.Roles())
	leakcheck.VerifyTestMain(m)
}

func TestParse(t *testing.T) {
	cfg, err := parse(strings.Fields("-only serial,cross -chart waits.svg"))
	if err != nil || cfg.chart != "waits.svg" || len(cfg.only) != 2 {
		t.Errorf("got %+v, %v", cfg, err)
	}
	if cfg, err := parse(nil); err != nil || len(cfg.only) != len(scenario.Names()) {
		t.Errorf("without flags: %+v, %v", cfg, err)
	}
	for args, want := range map[string]string{
		"-only serial,fast": "there are: serial, parallel, local, cross, handoff, store, redlock_serial",
		"serial":            `"serial" is not a flag`,
		"-slow":             "-slow",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

// TestRun_writesWhatItMeasured runs two scenarios so briefly that their figures mean nothing.
func TestRun_writesWhatItMeasured(t *testing.T) {
	cfg := config{
		only: []string{"serial", "cross"}, chart: filepath.Join(t.TempDir(), "waits.svg"),
		rounds: &scenario.Rounds{N: 1, Window: 20 * time.Millisecond},
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), cfg, &out, &progress); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"serial: one goroutine, a free key", "rounds: 1", "raw commands", "serial_vs_raw", "≤ 1.5", "≥ 0.93", "bars missed: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if key, _, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(line, "≤") && !strings.Contains(usage, key) {
			t.Errorf("usage.txt does not explain %s", key)
		}
	}
	if info, err := os.Stat(cfg.chart); err != nil || info.Size() == 0 {
		t.Errorf("the chart: %v", err)
	}
	if !strings.Contains(progress.String(), "serial   round 1 of 1") {
		t.Errorf("progress was %q", progress.String())
	}
}

func TestUsage_explainsEveryScenario(t *testing.T) {
	for _, name := range scenario.Names() {
		if !strings.Contains(usage, "\n  "+name+" ") {
			t.Errorf("no word about %s", name)
		}
	}
}
