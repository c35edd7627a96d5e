package distlock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Script is the driver of all tests of this directory. A test writes what its calls answer, and
// reads what they asked. A call without an answer of the test goes to Driver. Without a Driver,
// Script grants everything, under tokens that rise.
type Script struct {
	driver.Driver
	Caps      *driver.Capabilities // nil: those of Driver
	OnAcquire func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error)
	OnRaise   func(context.Context, driver.RaiseRequest) (driver.RaiseReply, error)
	OnExtend  func(context.Context, []driver.ExtendRequest) []driver.ExtendReply
	OnRelease func(context.Context, driver.ReleaseRequest) (driver.ReleaseReply, error)
	OnInspect func(context.Context, driver.Name) (driver.State, error)
	OnListen  func(context.Context) (<-chan driver.Wake, func(), error)
	OnClose   func() error

	mu       sync.Mutex
	last     int64 // token
	asked    []driver.AcquireRequest
	at       []time.Time // of asked
	granted  driver.AcquireRequest
	released []driver.ReleaseRequest
	extended int // requests
	raised   int
}

// Change sets fields while calls may be under way.
func (s *Script) Change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Asked returns the requests of Acquire so far, and their times.
func (s *Script) Asked() ([]driver.AcquireRequest, []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked), slices.Clone(s.at)
}

// Granted returns the last request that was granted, whether its answer arrived or not.
func (s *Script) Granted() driver.AcquireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

// Released returns the requests of Release so far.
func (s *Script) Released() []driver.ReleaseRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.released)
}

// Extended returns how many leases were to be extended so far.
func (s *Script) Extended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extended
}

// note runs note, and returns what a method does.
func note[F any](s *Script, method *F, note func()) F {
	s.mu.Lock()
	defer s.mu.Unlock()
	note()
	return *method
}

func (s *Script) Capabilities() driver.Capabilities {
	switch {
	case s.Caps != nil:
		return *s.Caps
	case s.Driver != nil:
		return s.Driver.Capabilities()
	}
	return driver.Capabilities{Backend: "script"}
}

func (s *Script) Acquire(ctx context.Context, req driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	on := note(s, &s.OnAcquire, func() { s.asked, s.at = append(s.asked, req), append(s.at, time.Now()) })
	switch {
	case on != nil:
		reply, err = on(ctx, req)
	case s.Driver != nil:
		reply, err = s.Driver.Acquire(ctx, req)
	default:
		reply.Outcome = driver.Granted
		reply.Fence, reply.FenceEnd = s.mint(0)
	}
	if err == nil && reply.Outcome == driver.Granted {
		s.Change(func() { s.granted = req })
	}
	return reply, err
}

func (s *Script) mint(floor int64) (fence, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fence = max(s.last+1, floor)
	s.last = fence + driver.FenceBlock
	return fence, s.last
}

func (s *Script) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	on := note(s, &s.OnRaise, func() { s.raised++ })
	switch {
	case on != nil:
		return on(ctx, req)
	case s.Driver != nil:
		return s.Driver.Raise(ctx, req)
	}
	fence, end := s.mint(req.Floor)
	return driver.RaiseReply{Held: true, Fence: fence, FenceEnd: end}, nil
}

func (s *Script) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	on := note(s, &s.OnExtend, func() { s.extended += len(reqs) })
	switch {
	case on != nil:
		return on(ctx, reqs)
	case s.Driver != nil:
		return s.Driver.Extend(ctx, reqs)
	}
	return Replies(reqs, driver.ExtendReply{Held: true})
}

// Replies gives each request the same reply.
func Replies(reqs []driver.ExtendRequest, reply driver.ExtendReply) []driver.ExtendReply {
	return slices.Repeat([]driver.ExtendReply{reply}, len(reqs))
}

func (s *Script) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	on := note(s, &s.OnRelease, func() { s.released = append(s.released, req) })
	switch {
	case on != nil:
		return on(ctx, req)
	case s.Driver != nil:
		return s.Driver.Release(ctx, req)
	}
	return driver.ReleaseReply{Released: true}, nil
}

func (s *Script) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if on := note(s, &s.OnInspect, func() {}); on != nil {
		return on(ctx, name)
	}
	return s.Driver.Inspect(ctx, name)
}

func (s *Script) Listen(ctx context.Context, name driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	on, listener := note(s, &s.OnListen, func() {}), driver.Listener(nil)
	if s.Driver != nil {
		listener, _ = driver.As[driver.Listener](s.Driver)
	}
	switch {
	case on != nil:
		return on(ctx)
	case listener != nil:
		return listener.Listen(ctx, name, owner)
	}
	return nil, nil, errors.ErrUnsupported
}

// Unwrap shows the optional interfaces of Driver that Script passes on.
func (s *Script) Unwrap() driver.Driver { return s.Driver }

func (s *Script) Close() error {
	switch {
	case s.OnClose != nil:
		return s.OnClose()
	case s.Driver != nil:
		return s.Driver.Close()
	}
	return nil
}

// unrenewed are options without renewal whose waits do not end.
var unrenewed = Options{RenewEvery: -1, Wait: -1}

// open makes a silent Locker that is closed at the end of the test.
func open(t *testing.T, d driver.Driver, opts Options) *Locker {
	t.Helper()
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
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

// granted is a lease without renewal.
func granted(t *testing.T) *Lease {
	t.Helper()
	return take(t, open(t, new(Script), unrenewed))
}

func give(t *testing.T, lease *Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func wantLost(t *testing.T, lease *Lease) {
	t.Helper()
	if cause := context.Cause(lease.Context()); cause != ErrLost {
		t.Errorf("the cause is %v, want ErrLost", cause)
	}
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

// each runs the test on fake time, for each case.
func each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, c) }) })
	}
}

func ran(t *testing.T) func(context.Context) error {
	return func(context.Context) error { t.Error("ran under a lease that had ended"); return nil }
}
