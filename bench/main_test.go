package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/report"
	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/internal/childproc"
	"github.com/belugalock/belugalock/internal/leakcheck"
)

func TestMain(m *testing.M) {
	childproc.Serve(scenario.Roles())
	leakcheck.VerifyTestMain(m)
}

func TestParse(t *testing.T) {
	cfg, err := parse(strings.Fields("-quick -json -only serial,cross -out results -check"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.paceName != "quick" || cfg.pace != scenario.Quick || !cfg.json || !cfg.check || cfg.out != "results" || len(cfg.only) != 2 {
		t.Errorf("got %+v", cfg)
	}
	if cfg, err := parse(nil); err != nil || cfg.paceName != "full" || len(cfg.only) != len(scenario.Names()) {
		t.Errorf("without flags: %+v, %v", cfg, err)
	}
	for args, want := range map[string]string{
		"-only serial,fast": "there are: serial, tracing, parallel, local, cross, handoff, idle, store, history, redlock_serial",
		"quick":             `"quick" is not a flag`,
		"-slow":             "-slow",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

func TestUsage_explainsEveryScenarioAndRatio(t *testing.T) {
	for _, name := range scenario.Names() {
		if !strings.Contains(usage, "\n  "+name+" ") {
			t.Errorf("no word about %s", name)
		}
	}
	for _, bar := range report.Bars {
		if !strings.Contains(usage, bar.Key) {
			t.Errorf("no word about %s", bar.Key)
		}
	}
}

// TestRun_writesWhatItMeasured runs two scenarios so briefly that their figures mean nothing.
func TestRun_writesWhatItMeasured(t *testing.T) {
	pace := scenario.Pace{
		Serial: scenario.Rounds{N: 1, Window: 10 * time.Millisecond},
		Cross:  scenario.Rounds{N: 1, Window: 200 * time.Millisecond, Settle: 50 * time.Millisecond},
	}
	dir := filepath.Join(t.TempDir(), "new", "results")
	cfg := config{only: []string{"serial", "cross"}, pace: pace, paceName: "test", json: true, out: dir}
	var out, progress bytes.Buffer
	if err := run(t.Context(), cfg, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var result map[string]any
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	for _, bar := range report.Bars {
		_, measured := result[bar.Key].(float64)
		if want := strings.HasPrefix(bar.Key, "serial") || strings.HasPrefix(bar.Key, "cross"); measured != want {
			t.Errorf("%s is %v", bar.Key, result[bar.Key])
		}
	}
	for _, name := range []string{"results.json", "cross.svg", "waits.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !strings.Contains(progress.String(), "serial   round 1 of 1") {
		t.Errorf("progress was %q", progress.String())
	}
}

func TestRun_checkFailsIfABarIsMissed(t *testing.T) {
	// In a window this short somebody gets nothing, and min/max share is 0.
	pace := scenario.Pace{Cross: scenario.Rounds{N: 1, Window: 2 * time.Millisecond}}
	cfg := config{only: []string{"cross"}, pace: pace, check: true}
	var out, progress bytes.Buffer
	if err := run(t.Context(), cfg, &out, &progress); !errors.Is(err, errMissed) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), "missed") {
		t.Errorf("the tables do not say what is missed:\n%s", out.String())
	}
}
