package page

import (
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/examples/agent/internal/report"
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
