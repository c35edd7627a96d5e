package adksession

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/adk/v2/session"
)

// leased is what a lease knows of its session: the last op at each of its steps. Steps of the lease alone
// use it.
type leased struct{ ops []string }

func (l *leased) last() string { return l.ops[len(l.ops)-1] }

// handle is a session.Session. Its IDs, its state and its events are those of a session in memory.
type handle struct {
	session.Session
	memory session.Service
	id
	service *Service

	mu      sync.Mutex
	op      string // the last one that the handle has seen or made
	failed  error  // of the first append that failed
	updated time.Time
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
func (h *handle) moved(ctx context.Context, op string, e *session.Event, updated time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.op, h.updated = op, updated
	_ = h.memory.AppendEvent(ctx, h.Session, e) // cannot fail
}
