package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/bench/internal/scenario"
	"github.com/belugalock/belugalock/bench/internal/stats"
)

func spread(median float64) stats.Spread {
	return stats.Spread{Median: median, Min: median - 0.5, Max: median + 0.5}
}

func example() *Report {
	return &Report{
		Time: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Took: 90 * time.Second, Go: "go1.26", Redis: "7.0.15", CPUs: 2, Pace: "quick",
		Outcomes: []*scenario.Outcome{
			{
				Name: "local", Title: "one key", Rounds: 3,
				Rows: []scenario.Row{
					{Subject: "belugalock", Cells: []scenario.Cell{{Key: "per_s", Heading: "acquisitions/s", Spread: spread(512345)}}},
					{Subject: "redsync"},
				},
				Ratios: []scenario.Ratio{{Key: "local_vs_best_peer", Against: "redsync", Spread: spread(170)}},
			},
			{
				Name: "idle", Title: "waiters", Rounds: 1,
				Ratios: []scenario.Ratio{{Key: "idle_calls_per_waiter_per_s", Spread: spread(7.5)}},
			},
		},
	}
}

func TestWriteJSON_hasTheRatiosAtItsTop(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Go, Redis, Pace string
		CPUs            int
		Local           float64 `json:"local_vs_best_peer"`
		Idle            float64 `json:"idle_calls_per_waiter_per_s"`
		Missed          int     `json:"bars_missed"`
		Ratios          map[string]struct {
			Min, Max, Limit float64
			Bar, Against    string
			Met             bool
		}
		Scenarios map[string]struct {
			Rounds   int
			Subjects map[string]map[string]stats.Spread
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Local != 170 || got.Idle != 7.5 || got.CPUs != 2 || got.Missed != 1 || got.Redis != "7.0.15" {
		t.Errorf("got %+v", got)
	}
	if local := got.Ratios["local_vs_best_peer"]; !local.Met || local.Bar != "at least" || local.Limit != 25 || local.Max != 170.5 {
		t.Errorf("got %+v", local)
	}
	if s := got.Scenarios["local"]; s.Rounds != 3 || s.Subjects["belugalock"]["per_s"] != spread(512345) {
		t.Errorf("got %+v", s)
	}
}

func TestWriteJSON_leavesOutWhatIsNoNumber(t *testing.T) {
	r := example()
	r.Outcomes[0].Ratios[0].Spread = stats.Spread{Median: math.NaN(), Min: 1, Max: math.Inf(1)}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) || !strings.Contains(b.String(), `"local_vs_best_peer": null`) {
		t.Errorf("got %s", b.String())
	}
	if missed := r.Missed(); len(missed) != 2 {
		t.Errorf("a NaN meets its bar: %v", missed)
	}
}

func TestWriteTables(t *testing.T) {
	var b bytes.Buffer
	if err := example().WriteTables(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"512,345", "≥ 25", "met", "≤ 0.3", "missed", "1 bar missed.", "local: one key (3 rounds)", "idle: waiters (1 round)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestFigure_isShort(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 0.0123: "0.012", 0.00044: "0.00044", 0.5: "0.50", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 9999: "9999", 12345: "12,345", 1234567: "1,234,567",
		math.Inf(1): "–",
	} {
		if got := figure(f); got != want {
			t.Errorf("%v is written %s, want %s", f, got, want)
		}
	}
}
