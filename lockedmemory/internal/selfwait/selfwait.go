// Package selfwait finds a call that would wait for the function that it is called from.
//
// A Save inside a turn, with the context from outside, would wait for its own turn: for minutes, until
// the wait ends. The context does not show the mistake, because goroutines may share it. The goroutine
// does: while it runs a turn's function, it can be nowhere else.
//
// Go hides the ID of a goroutine, so the package reads it from the first line of the stack. That costs
// 5 to 30 µs, by the depth of the stack: once per turn, and once per call that finds a turn of its
// session in the process. An ID only ever turns a wait into an error. It grants nothing, and an ID that
// cannot be read matches none.
package selfwait

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Set is the set of functions under way, each for a key. The zero value is ready for use.
type Set[K comparable] struct {
	mu   sync.Mutex
	runs map[K]map[uint64]time.Time // when the outermost function of a goroutine began
}

// Do runs fn for key.
func (s *Set[K]) Do(key K, fn func() error) error {
	if own := goroutine(); s.add(key, own) {
		defer s.remove(key, own)
	}
	return fn()
}

// Inside returns whether the caller is inside a function for key, and when the outermost one began.
func (s *Set[K]) Inside(key K) (began time.Time, inside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs[key]) == 0 { // and the ID need not be read
		return began, false
	}
	own := goroutine()
	began, inside = s.runs[key][own]
	return began, inside && own != 0
}

// add reports whether the goroutine was not in a function for key before.
func (s *Set[K]) add(key K, goroutine uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, inside := s.runs[key][goroutine]; inside {
		return false
	}
	if s.runs == nil {
		s.runs = make(map[K]map[uint64]time.Time)
	}
	if s.runs[key] == nil {
		s.runs[key] = make(map[uint64]time.Time)
	}
	s.runs[key][goroutine] = time.Now()
	return true
}

func (s *Set[K]) remove(key K, goroutine uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.runs[key], goroutine); len(s.runs[key]) == 0 {
		delete(s.runs, key)
	}
}

// goroutine returns the ID of the calling goroutine, which stands in the first line of its stack:
// "goroutine 42 [running]:". Without that line it returns 0.
func goroutine() (id uint64) {
	var line [64]byte
	text, _ := strings.CutPrefix(string(line[:runtime.Stack(line[:], false)]), "goroutine ")
	digits, _, _ := strings.Cut(text, " ")
	id, _ = strconv.ParseUint(digits, 10, 64)
	return id
}
