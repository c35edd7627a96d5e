package adksession

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"
)

// leased is what a lease knows of its session: the last op at each of its steps. Steps of the lease alone
// use it.
type leased struct{ ops []string }

func (l *leased) last() string { return l.ops[len(l.ops)-1] }

// handle is a session.Session. Its IDs and its state are those of a session in memory.
type handle struct {
	session.Session
	id
	service *Service

	mu      sync.Mutex
	op      string // the last one that the handle has seen or made
	failed  error  // of the first append that failed
	events  events
	updated time.Time
}

// Events returns those of this moment.
func (h *handle) Events() session.Events {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.events)
}

func (h *handle) LastUpdateTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.updated
}

// fail keeps the first error, and returns it. ⚑ ADK's RunLive goes on after a failed append, and would
// store a response without its call.
func (h *handle) fail(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = cmp.Or(h.failed, err)
	return h.failed
}

// enter returns the op before an append in a step of a lease. A handle may have missed appends of the lease
// alone.
func (h *handle) enter(l *leased) (last string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.failed != nil || len(l.ops) == 0:
		return h.op, h.failed
	case !slices.Contains(l.ops, h.op):
		return "", ErrStale
	}
	return l.last(), nil
}

// moved moves the handle after an append.
func (h *handle) moved(op string, kept *session.Event, delta map[string]any, updated time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.op, h.updated, h.events = op, updated, append(h.events, kept)
	for key, value := range delta {
		_ = h.State().Set(key, value) // in memory
	}
}

type events []*session.Event

func (e events) All() iter.Seq[*session.Event] { return slices.Values(e) }
func (e events) Len() int                      { return len(e) }

// At returns nil outside of the events.
func (e events) At(i int) *session.Event {
	if i < 0 || i >= len(e) {
		return nil
	}
	return e[i]
}
