package distlock

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/distlock/driver"
)

// minter grants everything, under tokens that rise.
type minter struct {
	driver.Driver
	mu        sync.Mutex
	last      int64
	raises    int
	extends   int
	releases  int
	tombstone bool          // the last release left one
	replayed  bool          // the client may have sent an Acquire twice
	hold      chan struct{} // answers of a RaiseToken wait for it; may be nil
}

func (m *minter) Capabilities() driver.Capabilities { return driver.Capabilities{Backend: "minter"} }
func (m *minter) Close() error                      { return nil }

func (m *minter) Acquire(_ context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fence := m.last + 1
	m.last = fence + driver.FenceBlock
	return driver.AcquireReply{Outcome: driver.Granted, Fence: fence, FenceEnd: m.last, Replayed: m.replayed}, nil
}

func (m *minter) Release(_ context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releases++
	m.tombstone = req.Tombstone > 0
	return driver.ReleaseReply{Released: true}, nil
}

func (m *minter) Raise(_ context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	if m.hold != nil {
		defer func() { <-m.hold }()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raises++
	fence := max(m.last+1, req.Floor)
	m.last = fence + driver.FenceBlock
	return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: m.last}, nil
}

func (m *minter) Extend(_ context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.extends++
	replies := make([]driver.ExtendReply, len(reqs))
	for i := range replies {
		replies[i].Held = true
	}
	return replies
}

// unrenewed are options without renewal whose waits do not end.
var unrenewed = Options{RenewEvery: -1, Wait: -1}

// open makes a silent Locker that is closed at the end of the test.
func open(t *testing.T, d driver.Driver, opts Options) *Locker {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	l, err := New(d, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func take(t *testing.T, l *Locker) *Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// lose has a lease end as the backend's answer "not held" does.
func lose(le *Lease) error {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	if err := le.errLocked(); err != nil {
		return err
	}
	return le.lossLocked(errNotMine)
}

func give(t *testing.T, lease *Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// granted is a lease without renewal.
func granted(t *testing.T) *Lease {
	t.Helper()
	return take(t, open(t, new(minter), unrenewed))
}

func ran(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("ran under a lease that had ended"); return nil }
}
