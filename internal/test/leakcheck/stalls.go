package leakcheck

import (
	"slices"
	"sync"
	"time"
)

const (
	beat = time.Millisecond
	// late is how late a beat may come on a machine that is not short of processors.
	late = 5 * time.Millisecond
)

// Span is a time in which the process was not let run, or only in part: other work had the processors.
type Span struct{ From, Until time.Time }

// Watch notes the spans in which the process was not let run. A test of how soon something happens
// allows for them, and for no more.
type Watch struct {
	ticks *time.Ticker
	done  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	last  time.Time // beat
	spans []Span
}

// NewWatch begins to watch, until Stop.
func NewWatch() *Watch {
	w := &Watch{ticks: time.NewTicker(beat), done: make(chan struct{}), last: time.Now()}
	w.ended.Go(func() {
		for {
			select {
			case <-w.ticks.C:
				w.look()
			case <-w.done:
				return
			}
		}
	})
	return w
}

// Stop ends the watch. What it has noted can still be asked for.
func (w *Watch) Stop() {
	w.look()
	w.ticks.Stop()
	close(w.done)
	w.ended.Wait()
}

func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.done:
		return
	default:
	}
	at := time.Now()
	if at.Sub(w.last) > late {
		w.spans = append(w.spans, Span{w.last.Add(beat), at})
	}
	w.last = at
}

// Spans returns those that have a part between two moments, cut to it. One that has just ended is
// among them.
func (w *Watch) Spans(from, until time.Time) (spans []Span) {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range slices.Backward(w.spans) {
		if !s.Until.After(from) {
			break
		}
		if s.From.Before(from) {
			s.From = from
		}
		if s.Until.After(until) {
			s.Until = until
		}
		if s.From.Before(s.Until) {
			spans = append(spans, s)
		}
	}
	slices.Reverse(spans)
	return spans
}

// Stalled is for how long in all, between two moments, the process was not let run.
func (w *Watch) Stalled(from, until time.Time) (sum time.Duration) {
	for _, s := range w.Spans(from, until) {
		sum += s.Until.Sub(s.From)
	}
	return sum
}

// Stalls is a Watch for one thing: until the function that it returns is called, which says for how
// long in all the process was not let run.
func Stalls() (stop func() time.Duration) {
	w, start := NewWatch(), time.Now()
	return func() time.Duration {
		w.Stop()
		return w.Stalled(start, time.Now())
	}
}
