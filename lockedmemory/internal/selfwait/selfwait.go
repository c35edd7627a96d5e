// Package selfwait finds a call that would wait for the function that it is called from.
//
// A Save inside a turn, with the context from outside, would wait for its own turn: for minutes, until
// the wait ends. The context does not show the mistake, because goroutines may share it. The goroutine
// does: while it runs a turn's function, it can be nowhere else.
//
// Go hides the ID of a goroutine, so the package reads it from the first line of the stack. That
// costs 3 to 35 µs, by the depth of the stack, for each function, and for each other call while a
// function for its key is under way. An ID only ever turns a wait into an error. It grants nothing,
// and an ID that cannot be read matches none.
package selfwait

import (
	"fmt"
	"runtime"
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
	own := goroutine()
	if s.begin(key, own) {
		defer s.end(key, own)
	}
	return fn()
}

// begin notes a function. It reports false inside another one for the key.
func (s *Set[K]) begin(key K, own uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, inside := s.runs[key][own]; inside {
		return false
	}
	if s.runs == nil {
		s.runs = make(map[K]map[uint64]time.Time)
	}
	if s.runs[key] == nil {
		s.runs[key] = make(map[uint64]time.Time)
	}
	s.runs[key][own] = time.Now()
	return true
}

func (s *Set[K]) end(key K, own uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.runs[key], own); len(s.runs[key]) == 0 {
		delete(s.runs, key)
	}
}

// Inside returns whether the caller is inside a function for key, and when the outermost one began.
func (s *Set[K]) Inside(key K) (began time.Time, inside bool) {
	s.mu.Lock()
	idle := len(s.runs[key]) == 0
	s.mu.Unlock()
	if idle { // the ID of the goroutine costs more than the rest of this package
		return began, false
	}
	own := goroutine()
	s.mu.Lock()
	defer s.mu.Unlock()
	began, inside = s.runs[key][own]
	return began, inside && own != 0
}

// goroutine returns the ID of the calling goroutine, which stands in the first line of its stack:
// "goroutine 42 [running]:". Without that line it returns 0.
func goroutine() (id uint64) {
	var line [64]byte
	_, _ = fmt.Sscanf(string(line[:runtime.Stack(line[:], false)]), "goroutine %d ", &id)
	return id
}
