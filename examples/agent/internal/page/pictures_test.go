package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/balancer"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/spans"
)

func TestWaterfall_keepsEverythingInside(t *testing.T) {
	long := turnOf("t1", "instance-1", 0, 0, 100_000)
	long = append(long, at("t1-release", "t1", "distlock.release", "instance-1", 100_000, 100_000))
	scene, ok := report.Clearest(append(long, turnOf("t2", "instance-2", 1, 100_000, 100_000, "t1")...))
	if !ok {
		t.Fatal("there is no scene")
	}
	w := waterfallOf(scene)
	for _, l := range w.Lanes {
		for _, b := range l.Bars {
			if b.X < 0 || b.Width < narrowest || b.X+b.Width > 1.000001 || b.Top+barHeight > w.Foot {
				t.Errorf("the bar of %s is at %s, %s wide, %d from the top", b.Name, b.X, b.Width, b.Top)
			}
		}
	}
	if w.Link.X < 0.4 || w.Link.X > 0.6 || w.Link.From <= w.Link.To || w.Link.From > w.Foot {
		t.Errorf("the link is %+v", w.Link)
	}
}

// waiting is a run with turns that waited for the lock.
func waiting(locked report.Locked, waits ...time.Duration) *report.Result {
	r := &report.Result{Locked: locked}
	for _, d := range waits {
		r.Spans = append(r.Spans, spans.Span{Name: "distlock.acquire", Start: time.UnixMilli(0), End: time.UnixMilli(0).Add(d)})
	}
	return r
}

func TestWaits_showsEveryWait(t *testing.T) {
	for name, all := range map[string][]time.Duration{
		"one":         {time.Millisecond},
		"none at all": {0, 0},
		"far apart":   {0, time.Microsecond, 100 * time.Millisecond, time.Minute},
		"on an edge":  {10 * time.Millisecond, 100 * time.Millisecond, 160 * time.Millisecond},
	} {
		w := waitsOf([]*report.Result{waiting(report.NoLock), waiting(report.SaveOnly, time.Second), waiting(report.WholeTurn, all...)})
		if len(w.Rows) != 2 || w.Rows[0].Name != "Save only" || len(w.Percentiles[0].Cells) != 2 {
			t.Fatalf("%s: the rows are %+v", name, w.Rows)
		}
		turns, last := 0, share(-1)
		for _, c := range w.Rows[1].Columns {
			var n int
			if _, err := fmt.Sscanf(c.Title[strings.Index(c.Title, ":"):], ": %d of", &n); err != nil {
				t.Fatal(err)
			}
			turns += n
			if c.X <= last || c.Width <= 0 || c.X+c.Width > 1 || c.Y < float64(w.Rows[1].Top) || c.Tall < 1 || math.Abs(c.Y+c.Tall-float64(w.Rows[1].End)) > 0.001 {
				t.Errorf("%s: a column is %+v", name, c)
			}
			last = c.X
		}
		if turns != len(all) {
			t.Errorf("%s: the columns show %d turns", name, turns)
		}
	}
	if waitsOf([]*report.Result{waiting(report.NoLock)}) != nil {
		t.Error("there is a picture of no waits")
	}
}

func TestLogAxis_placesDecadesEvenly(t *testing.T) {
	axis := logAxisOf(300*time.Microsecond, 2*time.Second)
	var labels []string
	for i, mark := range axis.ticks() {
		labels = append(labels, mark.Label)
		if want := share(i) / 5; math.Abs(float64(mark.X-want)) > 0.0001 {
			t.Errorf("%s is at %s, want %s", mark.Label, mark.X, want)
		}
	}
	if got := strings.Join(labels, " "); got != " 1 ms 10 ms 100 ms 1 s " {
		t.Errorf("the labels are %q", got)
	}
	var edges []string
	for i := range perDecade + 1 {
		edges = append(edges, label(axis.edge(i)))
	}
	if got := strings.Join(edges, ", "); got != "0.1 ms, 0.16 ms, 0.25 ms, 0.4 ms, 0.63 ms, 1 ms" {
		t.Errorf("the edges are %s", got)
	}
	for i := range axis.columns() {
		if got := axis.column(axis.edge(i)); got != i {
			t.Errorf("%s is in column %d, want %d", axis.edge(i), got, i)
		}
	}
}

func TestTimes_drawsTheIdealTime(t *testing.T) {
	c := comparison()
	c.WholeTurn.Took = 216 * time.Millisecond
	c.NoLock.Took = 54 * time.Millisecond
	shown := timesOf(c)
	if shown.Least != "0.1 s" || shown.Ratio != "1.83" || !shown.Overlap || shown.LeastX >= 1 {
		t.Errorf("the picture is %+v", shown)
	}
	if b := shown.Bars[0]; b.Name != "no lock" || math.Abs(float64(b.Width)-0.054) > 0.0001 {
		t.Errorf("the first bar is %+v", b)
	}
	c.WholeTurn.Spans = nil
	if timesOf(c) != nil {
		t.Error("there is an ideal time without turns")
	}
}

// bars returns where the bars of a path begin and end, in units.
func bars(t *testing.T, path string) (all [][2]int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`M(\d+) 0h(\d+)v1h-(\d+)z`).FindAllStringSubmatch(path, -1) {
		from, _ := strconv.Atoi(m[1])
		wide, _ := strconv.Atoi(m[2])
		if m[2] != m[3] {
			t.Errorf("a bar is %q", m[0])
		}
		all = append(all, [2]int{from, from + wide})
	}
	return all
}

func TestTimeline_marksKillsAndPauses(t *testing.T) {
	c := comparison()
	c.Chaos.Strikes = 2
	r := &report.Result{Locked: report.WholeTurn, Began: time.UnixMilli(1_000_000), Took: 400 * time.Millisecond}
	failed := at("f", "", spans.Turn, "instance-1", 200, 300)
	failed.Error = "the lock was lost"
	r.Spans = []spans.Span{
		at("a", "", spans.Turn, "instance-1", 0, 100), at("b", "a", "distlock.acquire", "instance-1", 20, 60), failed,
		at("m", "g", "load", "instance-2", 50, 60), // its turn is killed
		at("h", "", spans.Turn, "instance-2", 200, 220),
	}
	moment := func(ms int64) time.Time { return time.UnixMilli(1_000_000 + ms) }
	r.Events = []balancer.Event{{Instance: 1, What: balancer.Paused, At: moment(220)}, {Instance: 2, What: balancer.Killed, At: moment(100)},
		{Instance: 1, What: balancer.Resumed, At: moment(280)}}
	c.WholeTurn = r
	c.NoLock.Took, c.SaveOnly.Took = time.Millisecond, time.Millisecond
	shown := timelineOf(c)
	one, two := shown.Runs[2].Tracks[0], shown.Runs[2].Tracks[1]
	for name, test := range map[string]struct {
		path string
		want [][2]int
	}{
		"work":               {one.Work, [][2]int{{0, 200}, {600, 997}}},
		"wait":               {one.Wait, [][2]int{{200, 600}}},
		"failed":             {one.Failed, [][2]int{{2000, 2997}}},
		"work of the second": {two.Work, [][2]int{{2000, 2197}}},
		"killed":             {two.Failed, [][2]int{{500, 997}}},
	} {
		if got := bars(t, test.path); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: the bars are %v, want %v", name, got, test.want)
		}
	}
	if len(two.Kills) != 1 || math.Abs(float64(two.Kills[0]-(margin+(1-margin)/4))) > 0.001 {
		t.Errorf("the kills are at %v", two.Kills)
	}
	if len(one.Pauses) != 1 || math.Abs(float64(one.Pauses[0].Width-0.15*(1-margin))) > 0.001 {
		t.Errorf("the pauses are %v", one.Pauses)
	}
	for _, want := range []string{"whole turn: 0.4 s for all messages", "instance-1: turns 2, failed 1, pauses 1", "instance-2: turns 2, failed 1, kills 1."} {
		if !strings.Contains(shown.Story, want) {
			t.Errorf("the story is %q, want %q", shown.Story, want)
		}
	}
}

func TestTimeline_staysSmall(t *testing.T) {
	c := comparison()
	c.Instances = 64
	c.WholeTurn.Took = time.Minute
	for i := range 20_000 {
		c.WholeTurn.Spans = append(c.WholeTurn.Spans, at("", "", spans.Turn, "instance-64", 3*i, 3*i+2))
	}
	shown := timelineOf(c)
	tracks := shown.Runs[2].Tracks
	if n := len(tracks[63].Work); len(tracks) != 64 || n == 0 || n > 100_000 {
		t.Errorf("a path has %d bytes on %d tracks", n, len(tracks))
	}
	if shown.Height > 1400 || tracks[63].Y+tracks[63].Tall > float64(shown.Foot) {
		t.Errorf("the picture is %d high, its last track at %v", shown.Height, tracks[63].Y)
	}
}

func TestTicks_areRoundAndFew(t *testing.T) {
	for span, want := range map[time.Duration]string{
		0:                       "0",
		95 * time.Millisecond:   "0 20 ms 40 ms 60 ms 80 ms",
		100 * time.Millisecond:  "0 20 ms 40 ms 60 ms 80 ms",
		130 * time.Millisecond:  "0 25 ms 50 ms 75 ms 100 ms",
		164 * time.Millisecond:  "0 50 ms 100 ms",
		3 * time.Second:         "0 500 ms 1 s 1.5 s 2 s 2.5 s",
		1100 * time.Microsecond: "0 0.2 ms 0.4 ms 0.6 ms 0.8 ms 1 ms",
	} {
		var labels []string
		for _, tick := range ticks(span, 6) {
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, " "); got != want {
			t.Errorf("%s: %s, want %s", span, got, want)
		}
	}
}
