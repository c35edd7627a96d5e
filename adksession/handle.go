package adksession

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/adk/v2/session"
)

// position is where the next append to a session goes. ⚑ Not a number: after a failover, another event may have
// the number of the last one.
type position struct{ born, op string }

// place is the position of the handles that share it. ⚑ A step of a lost lease may still end beside a step of
// the next one.
type place = atomic.Pointer[position]

// leased is what a lease knows of its session. Steps of the lease alone use it.
type leased struct {
	place    *place
	accepted bool // the store has taken a token of the lease
}

// handle is a session.Session.
type handle struct {
	id
	service *Service

	mu      sync.RWMutex
	place   *place
	failed  error // of the first append that failed
	events  events
	state   map[string]any
	updated time.Time
}

// newHandle makes a handle of a session that was read.
func (s *Service) newHandle(of id, read stored, records []string) (*handle, error) {
	state, err := decodeStates(read)
	if err != nil {
		return nil, err
	}
	list, err := decode(records)
	if err != nil {
		return nil, err
	}
	h := &handle{id: of, service: s, place: new(place), events: list, state: state, updated: read.updated}
	h.place.Store(&position{read.born, read.op})
	return h, nil
}

func (h *handle) ID() string      { return h.name }
func (h *handle) AppName() string { return h.app }
func (h *handle) UserID() string  { return h.user }

func (h *handle) State() session.State { return (*state)(h) }

// Events returns those of this moment.
func (h *handle) Events() session.Events {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Clip(h.events)
}

func (h *handle) LastUpdateTime() time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.updated
}

// failure returns the error that the handle keeps.
func (h *handle) failure() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.failed
}

// fail keeps the first error. ⚑ ADK's RunLive goes on after a failed append, and would store a response without
// its call.
func (h *handle) fail(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
	}
	return err
}

// enter returns the place of an append in a step of a lease.
func (h *handle) enter(l *leased) (*place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := *h.place.Load()
	switch {
	case l.place == h.place: // other handles of the lease may have moved it
		return h.place, nil
	case l.place == nil || l.place.Load().born != mine.born:
		// ⚑ A copy: the place may be shared since a lease that has ended, with handles that miss this append.
		at := new(place)
		at.Store(&mine)
		return at, nil
	case *l.place.Load() == mine:
		h.place = l.place
		return h.place, nil
	}
	return nil, ErrStale
}

// moved moves the handle and its place after an append.
func (h *handle) moved(at *place, to position, kept *session.Event, delta map[string]any, updated time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at.Store(&to)
	h.place, h.updated = at, updated
	h.events = append(h.events, kept)
	maps.Copy(h.state, delta)
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

// state is a session.State. Set changes the handle alone.
type state handle

func (s *state) Get(key string) (any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.state[key]
	if !ok {
		return nil, session.ErrStateKeyNotExist
	}
	return value, nil
}

func (s *state) Set(key string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[key] = value
	return nil
}

func (s *state) All() iter.Seq2[string, any] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.All(maps.Clone(s.state))
}
