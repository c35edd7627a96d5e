package adksession

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/adk/v2/session"
)

// position is where the next append to a session goes. ⚑ Not a number: after a failover, another event
// may have the number of the last one.
type position struct{ born, op string }

// place is the position of the handles that share it. ⚑ A step of a lost lease may still end beside a step of
// the next one.
type place = atomic.Pointer[position]

// leased is what a lease knows of its session. Steps of the lease alone use it.
type leased struct {
	place    *place
	accepted bool // the store has taken a token of the lease
}

// handle is a session.Session. Its IDs and its state are those of a session in memory.
type handle struct {
	session.Session
	id
	service *Service

	mu      sync.Mutex
	place   *place
	failed  error // of the first append that failed
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

// enter returns the place of an append in a step of a lease.
func (h *handle) enter(l *leased) (*place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := *h.place.Load()
	switch {
	case l.place == h.place: // other handles of the lease may have moved it
	case l.place == nil || l.place.Load().born != mine.born:
		// ⚑ A copy: the place may be shared since a lease that has ended, with handles that miss this append.
		at := new(place)
		at.Store(&mine)
		return at, nil
	case *l.place.Load() != mine:
		return nil, ErrStale
	}
	return l.place, nil
}

// moved moves the handle and its place after an append.
func (h *handle) moved(at *place, to position, kept *session.Event, delta map[string]any, updated time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at.Store(&to)
	h.place, h.updated, h.events = at, updated, append(h.events, kept)
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
