package leakcheck

import (
	"runtime"
	"testing"
	"time"
)

func TestMain(m *testing.M) { VerifyTestMain(m) }

// A goroutine that does not give its processor away, on a machine of one, stalls all others for 10
// ms and more.
func hog() {
	runtime.Gosched()
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
}

func TestStalls(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	stop := Stalls()
	hog()
	if stalled := stop(); stalled < 50*time.Millisecond || stalled > 5*time.Second {
		t.Errorf("stalled for %s of 200ms", stalled)
	}
}

func TestWatch_spansBetweenTwoMoments(t *testing.T) {
	at := time.Now()
	w := NewWatch()
	w.Stop()
	moment := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	w.spans = []Span{{moment(1), moment(2)}, {moment(4), moment(7)}, {moment(8), moment(9)}}
	for _, c := range []struct{ from, until, spans, stalled int }{
		{0, 10, 3, 5}, {2, 4, 0, 0}, {5, 6, 1, 1}, {6, 20, 2, 2}, {0, 5, 2, 2}, {9, 10, 0, 0},
	} {
		spans, stalled := w.Spans(moment(c.from), moment(c.until)), w.Stalled(moment(c.from), moment(c.until))
		if len(spans) != c.spans || stalled != time.Duration(c.stalled)*time.Second {
			t.Errorf("from %d until %d: %v in %d spans, want %ds in %d", c.from, c.until, stalled, len(spans), c.stalled, c.spans)
		}
	}
}

func TestWatch_notesAStallThatHasJustEnded(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := NewWatch()
	defer w.Stop()
	start := time.Now()
	hog()
	if stalled := w.Stalled(start, time.Now()); stalled < 50*time.Millisecond {
		t.Errorf("stalled for %s of 200ms", stalled)
	}
}
