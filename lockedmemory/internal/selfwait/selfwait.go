// Package selfwait finds a call that would wait for the function that it is called from.
//
// A Save inside a turn, with the context from outside, would wait for its own turn: for minutes, until
// the wait ends. The context does not show the mistake, because goroutines may share it. The goroutine
// does: while it runs a turn's function, it can be nowhere else.
//
// Go hides the ID of a goroutine, so the package reads it from the first line of the stack. That costs
// about a microsecond: once per turn, and once per call that finds a turn of its session in the process.
// An ID only ever turns a wait into an error. It grants nothing, and an ID that cannot be read matches
// none.
package selfwait

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Set is the set of functions under way, each for a key. The zero value is ready for use.
type Set[K comparable] struct {
	mu   sync.Mutex
	runs map[K][]*run
}

type run struct {
	goroutine uint64
	began     time.Time
}

// Do runs fn for key.
func (s *Set[K]) Do(key K, fn func() error) error {
	this := &run{goroutine(), time.Now()}
	s.add(key, this)
	defer s.remove(key, this)
	return fn()
}

// Inside returns whether the caller is inside a function for key, and when the innermost one began.
func (s *Set[K]) Inside(key K) (began time.Time, inside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.runs[key]) == 0 { // and the ID need not be read
		return began, false
	}
	own := goroutine()
	for _, r := range slices.Backward(s.runs[key]) {
		if r.goroutine == own && own != 0 {
			return r.began, true
		}
	}
	return began, false
}

func (s *Set[K]) add(key K, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = make(map[K][]*run)
	}
	s.runs[key] = append(s.runs[key], r)
}

func (s *Set[K]) remove(key K, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[key] = slices.DeleteFunc(s.runs[key], func(other *run) bool { return other == r }); len(s.runs[key]) == 0 {
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
