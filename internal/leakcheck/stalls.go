package leakcheck

import (
	"slices"
	"time"
)

const (
	beat = time.Millisecond
	// late is how late a beat may come on a machine that is not short of processors.
	late = 5 * time.Millisecond
)

// Span is a time in which the process was not let run, or only in part: other work had the processors.
type Span struct{ From, Until time.Time }

// Stalls watches until the function that it returns is called, which says for how long in all the process was not let
// run. A test of how soon something happens allows for that time, and no more.
func Stalls() (stop func() time.Duration) {
	spans := Spans()
	return func() (sum time.Duration) {
		for _, s := range spans() {
			sum += s.Until.Sub(s.From)
		}
		return sum
	}
}

// Spans is Stalls, for tests of many things, each of which may have had its own.
func Spans() (stop func() []Span) {
	done, spans := make(chan struct{}), make(chan []Span)
	go func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		var all []Span
		last := time.Now()
		look := func() {
			at := time.Now()
			if at.Sub(last) > late {
				all = append(all, Span{last.Add(beat), at})
			}
			last = at
		}
		for {
			select {
			case <-tick.C:
				look()
			case <-done:
				look()
				spans <- all
				return
			}
		}
	}()
	return func() []Span {
		close(done)
		return <-spans
	}
}

// Within reports whether one of the spans has a part between two moments.
func Within(spans []Span, from, until time.Time) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.From.Before(until) && from.Before(s.Until) })
}
