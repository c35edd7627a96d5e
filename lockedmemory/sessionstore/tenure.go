package sessionstore

import (
	"context"
	"sync"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// tenures are what a store knows of the leases that its calls run under.
type tenures struct {
	mu      sync.Mutex
	byLease map[*distlock.Lease]*tenure
}

// tenure is what a store has done under a lease, as long as that has one token.
type tenure struct {
	mu    sync.Mutex
	fence int64
	known bool // the store has been shown the token
	used  bool // the store has been shown this token or an earlier one
	need  driver.Place
	n     int64 // the last place that was given out
}

// of returns the tenure of a lease, which is forgotten when the lease ends.
func (ts *tenures) of(lease *distlock.Lease) *tenure {
	t := &tenure{}
	if lease.Context().Err() != nil { // as a goroutine left behind may have it: let the service decide
		return t
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if known := ts.byLease[lease]; known != nil {
		return known
	}
	if ts.byLease == nil {
		ts.byLease = make(map[*distlock.Lease]*tenure)
	}
	ts.byLease[lease] = t
	context.AfterFunc(lease.Context(), func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		delete(ts.byLease, lease)
	})
	return t
}

// as makes the tenure that of a token; the lease's may have risen.
func (t *tenure) as(fence int64) {
	if t.fence < fence {
		t.fence, t.known, t.n = fence, false, 0
	}
}

// next gives out a place. It is used up whatever becomes of the write: a late copy of that must not meet another one there.
func (t *tenure) next(fence int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.as(fence)
	t.n++
	return t.n
}

// skip says that places up to n are taken.
func (t *tenure) skip(fence, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.as(fence)
	if t.fence == fence {
		t.known, t.used, t.n = true, true, max(t.n, n)
	}
}

// access returns what a call under the token says of itself, see driver.Access.
func (t *tenure) access(fence int64) (first bool, need driver.Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.as(fence)
	return !t.known, t.need
}

func (t *tenure) shown(fence int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.used = t.known || t.fence == fence, true
}
