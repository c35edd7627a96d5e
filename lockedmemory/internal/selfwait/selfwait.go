// Package selfwait finds a call that would wait for the function that it is called from.
//
// A Save inside a turn, with the context from outside, would wait for its own turn: for minutes, until
// the wait ends. The context does not show the mistake, because goroutines may share it. The goroutine
// does: while it runs a turn's function, it can be nowhere else.
//
// Go hides the ID of a goroutine, so the package reads it from the first line of the stack. That costs
// 3 to 35 µs, by the depth of the stack, for each call that takes the lock of a session. An ID only ever
// turns a wait into an error. It grants nothing, and an ID that cannot be read matches none.
package selfwait

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Set is the set of functions under way, each for a key. The zero value is ready for use.
type Set[K comparable] struct {
	runs sync.Map // from run[K] to the time.Time at which its outermost function began
}

// run is what a goroutine does for a key.
type run[K comparable] struct {
	key       K
	goroutine uint64
}

// Do runs fn for key.
func (s *Set[K]) Do(key K, fn func() error) error {
	own := run[K]{key, goroutine()}
	if _, inside := s.runs.LoadOrStore(own, time.Now()); !inside {
		defer s.runs.Delete(own)
	}
	return fn()
}

// Inside returns whether the caller is inside a function for key, and when the outermost one began.
func (s *Set[K]) Inside(key K) (began time.Time, inside bool) {
	own := run[K]{key, goroutine()}
	if at, ok := s.runs.Load(own); ok && own.goroutine != 0 {
		return at.(time.Time), true
	}
	return began, false
}

// goroutine returns the ID of the calling goroutine, which stands in the first line of its stack:
// "goroutine 42 [running]:". Without that line it returns 0.
func goroutine() (id uint64) {
	var line [64]byte
	_, _ = fmt.Sscanf(string(line[:runtime.Stack(line[:], false)]), "goroutine %d ", &id)
	return id
}
