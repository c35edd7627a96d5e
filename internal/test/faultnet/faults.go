package faultnet

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// waitTimeout bounds what a test waits for. Only a test that fails waits for it.
const waitTimeout = 10 * time.Second

// Match chooses requests. A request is one command as it is on the wire, such as
// "*2\r\n$3\r\nget\r\n$3\r\nkey\r\n". Calls for one fault are made one at a time, so that a Match
// may count them. A nil Match chooses every request.
type Match = func(request []byte) bool

// Containing matches requests with this text, in any case.
func Containing(text string) Match {
	lower := []byte(strings.ToLower(text))
	return func(request []byte) bool { return bytes.Contains(bytes.ToLower(request), lower) }
}

// First matches the first n requests that match, so that a repetition passes.
func First(n int, match Match) Match {
	var mu sync.Mutex
	return func(request []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if n <= 0 || match != nil && !match(request) {
			return false
		}
		n--
		return true
	}
}

// fault is a rule that applies to requests, and counts what became of it.
type fault struct {
	tb   testing.TB
	what string // in a message: "replies were dropped"

	mu    sync.Mutex
	match Match // nil once the fault has ended
	n     int
}

func newFault(tb testing.TB, what string, match Match) *fault {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	return &fault{tb: tb, what: what, match: match}
}

// Count returns how many there have been so far.
func (f *fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Wait returns when Count is at least n. After 10 seconds it fails the test.
func (f *fault) Wait(n int) {
	f.tb.Helper()
	if !servers.Within(waitTimeout, func() bool { return f.Count() >= n }) {
		f.tb.Fatalf("%d of %d %s after %v", f.Count(), n, f.what, waitTimeout)
	}
}

// matches tells whether the fault applies to a request.
func (f *fault) matches(request []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.match != nil && f.match(request)
}

func (f *fault) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *fault) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.match = nil
}

// Dropped counts the replies that DropReplies has swallowed: the server has executed that many
// requests whose clients cannot know it.
type Dropped struct{ *fault }

func newDropped(tb testing.TB, match Match) *Dropped {
	return &Dropped{newFault(tb, "replies were dropped", match)}
}

// Stop ends the fault: requests that are forwarded from now on get their replies.
func (d *Dropped) Stop() { d.end() }

// Held counts the requests that HoldRequests has kept from the server. Count and Wait include those
// that have been released.
type Held struct {
	*fault
	answered *fault
	released chan struct{}
	once     sync.Once
}

func newHeld(tb testing.TB, match Match) *Held {
	return &Held{
		fault:    newFault(tb, "requests were held", match),
		answered: newFault(tb, "requests that were held and released had an answer", nil),
		released: make(chan struct{}),
	}
}

// Release ends the fault and forwards the held requests, also of clients that have gone. It returns
// when the server has answered each of them, or closed the connection. After 10 seconds it fails
// the test.
func (h *Held) Release() {
	h.tb.Helper()
	h.end() // first, so that Count is final
	h.once.Do(func() { close(h.released) })
	h.answered.Wait(h.Count())
}

// hold counts a request that matches and tells whether it does.
func (h *Held) hold(request []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.match == nil || !h.match(request) {
		return false
	}
	h.n++
	return true
}
