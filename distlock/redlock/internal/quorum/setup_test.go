package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a node as several drivers share it. Its locks are in memory.
type server struct {
	name string

	mu      sync.Mutex
	locks   *quorum.Memory
	since   time.Time     // the start
	ahead   time.Duration // the shown clock
	fault   func(request) fault
	log     []request
	hung    chan struct{} // not nil: no call begins until it is closed
	cut     chan struct{} // closed when the connections are cut
	down    error         // the error of all calls
	foreign map[driver.Name]bool
	waiters map[chan driver.Wake]driver.Name
}

// request is one call of a node.
type request struct {
	op        string // as "acquire"
	name      driver.Name
	owner     string
	fence     int64
	tombstone time.Duration // of a Release
	quiet     bool
}

// fault changes a call.
type fault struct {
	before error           // the node never receives it
	after  error           // its answer is lost
	slow   error           // the node answers with it, after hold, and does nothing
	hold   <-chan struct{} // the node receives it when this is closed
	answer <-chan struct{} // the answer comes when this is closed
}

var errLost = errors.New("the answer is lost")

func newServers(n int) []*server {
	servers := make([]*server, n)
	for i := range servers {
		servers[i] = &server{
			name:    fmt.Sprintf("node%d:7000", i+1),
			locks:   quorum.NewMemory(""),
			since:   time.Now().Add(-time.Hour),
			cut:     make(chan struct{}),
			foreign: make(map[driver.Name]bool),
			waiters: make(map[chan driver.Wake]driver.Name),
		}
	}
	return servers
}

// connect makes a driver over the servers.
func connect(servers []*server, restartDelay time.Duration) driver.Driver {
	var nodes []quorum.Node
	for _, s := range servers {
		nodes = append(nodes, link{s})
	}
	return quorum.New(nodes, restartDelay)
}

// newDriver makes a driver that ends with the test.
func newDriver(tb testing.TB, servers []*server) driver.Driver {
	d := connect(servers, -1)
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return d
}

// inject calls fault for each further call.
func (s *server) inject(fault func(request) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// fails has all calls fail; nil ends that.
func (s *server) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

// hang has all calls wait for resume.
func (s *server) hang() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hung := make(chan struct{})
	s.hung = hung
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hung = nil
		close(hung)
	})
}

// restart ends the connections. The server has no locks any more.
func (s *server) restart() {
	s.mu.Lock()
	s.locks = quorum.NewMemory("")
	s.since = time.Now()
	s.mu.Unlock()
	s.cutConnections()
}

func (s *server) cutConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
	for wakes := range s.waiters {
		wake(wakes)
	}
}

// requests are the calls so far.
func (s *server) requests(op string) (found []request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.log {
		if r.op == op {
			found = append(found, r)
		}
	}
	return found
}

func (s *server) count(op string) int { return len(s.requests(op)) }

// state is what the server has of a name.
func (s *server) state(tb testing.TB, name driver.Name) quorum.State {
	tb.Helper()
	s.mu.Lock()
	locks := s.locks
	s.mu.Unlock()
	reply, err := locks.Inspect(context.Background(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return reply.State
}

func (s *server) released(name driver.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wakes, of := range s.waiters {
		if of == name {
			wake(wakes)
		}
	}
}

func wake(wakes chan driver.Wake) {
	select {
	case wakes <- driver.Wake{}:
	default:
	}
}

const (
	long = 30 * time.Second
)

var (
	name   = driver.Name{Namespace: "n", Key: "k"}
	owners atomic.Int64
)

// request is one of a new owner.
func newRequest() driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Owner: fmt.Sprintf("%032x", owners.Add(1)), TTL: long, Holder: "test"}
}

func acquire(t *testing.T, d driver.Driver, req driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return reply
}

func granted(t *testing.T, d driver.Driver, req driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply := acquire(t, d, req)
	if reply.Outcome != driver.Granted {
		t.Fatalf("Acquire: %+v, want a grant", reply)
	}
	return reply
}

// refused asks for a name that the owner does not get.
func refused(t *testing.T, d driver.Driver, req driver.AcquireRequest, want driver.Outcome) {
	t.Helper()
	if reply := acquire(t, d, req); reply.Outcome != want {
		t.Errorf("Acquire: %+v, want the outcome %d", reply, want)
	}
}

func release(t *testing.T, d driver.Driver, req driver.AcquireRequest) {
	t.Helper()
	reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil || !reply.Released {
		t.Fatalf("Release: %+v, %v", reply, err)
	}
}

func extend(t *testing.T, d driver.Driver, req driver.AcquireRequest) driver.ExtendReply {
	t.Helper()
	extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL}
	return d.Extend(t.Context(), []driver.ExtendRequest{extend})[0]
}

func extended(t *testing.T, d driver.Driver, req driver.AcquireRequest) {
	t.Helper()
	if reply := extend(t, d, req); !reply.Held || reply.Err != nil {
		t.Errorf("Extend: %+v, want held", reply)
	}
}

// taken is the request of a new owner that has the name.
func taken(t *testing.T, d driver.Driver) driver.AcquireRequest {
	t.Helper()
	req := newRequest()
	granted(t, d, req)
	return req
}

// turn has a new owner take and release the name.
func turn(t *testing.T, d driver.Driver) {
	t.Helper()
	release(t, d, taken(t, d))
}

func wantHolders(t *testing.T, servers []*server, want int) {
	t.Helper()
	if n := holders(t, servers); n != want {
		t.Errorf("%d nodes hold the name, want %d", n, want)
	}
}

// lose restarts servers without their locks.
func lose(servers []*server) {
	for _, s := range servers {
		s.restart()
	}
}

// fail makes all calls of some servers fail; nil ends that.
func fail(servers []*server, err error) {
	for _, s := range servers {
		s.fails(err)
	}
}

// injectAll calls fault for each further call of some servers.
func injectAll(servers []*server, fault func(request) fault) {
	for _, s := range servers {
		s.inject(fault)
	}
}

// holders is on how many servers the name is held.
func holders(t *testing.T, servers []*server) (n int) {
	t.Helper()
	for _, s := range servers {
		if s.state(t, name).Held {
			n++
		}
	}
	return n
}

// on returns a fault for one kind of call.
func on(op string, f fault) func(request) fault {
	return func(r request) fault {
		if r.op == op {
			return f
		}
		return fault{}
	}
}

// after is closed after a time.
func after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// delayed holds each call back.
func delayed(d time.Duration) func(request) fault {
	return func(request) fault { return fault{hold: after(d)} }
}

// raw takes the name on a server for another owner.
func (s *server) raw(t *testing.T, owner string, fence int64, ttl time.Duration) {
	t.Helper()
	p := quorum.Proposal{Name: name, Owner: owner, TTL: ttl, Token: fence}
	if reply, err := s.locks.Acquire(t.Context(), p); err != nil || reply.Outcome != quorum.Granted {
		t.Fatalf("a raw Acquire: %+v, %v", reply, err)
	}
}

// link is a node as one process sees it.
type link struct{ server *server }

func (l link) Name() string { return l.server.name }

func (l link) Up() time.Duration {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return time.Since(l.server.since)
}

// call makes a call as the faults of the server want. A caller that leaves lets it go on.
func call(ctx context.Context, s *server, r request, f func(*quorum.Memory) (quorum.Reply, error)) (quorum.Reply, error) {
	var none quorum.Reply
	s.mu.Lock()
	var fault fault
	if s.fault != nil {
		fault = s.fault(r)
	}
	s.log = append(s.log, r)
	hung, cut, err := s.hung, s.cut, s.down
	if s.foreign[r.name] {
		err = driver.ErrForeign
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return none, err
	case fault.before != nil:
		return none, fault.before
	case ctx.Err() != nil:
		return none, fmt.Errorf("%w: %w", driver.ErrNotDone, ctx.Err())
	}
	type answer struct {
		reply quorum.Reply
		err   error
	}
	answers := make(chan answer, 1)
	perform := func() {
		for _, until := range []<-chan struct{}{hung, fault.hold} {
			if until != nil {
				<-until
			}
		}
		s.mu.Lock()
		locks := s.locks
		s.mu.Unlock()
		if fault.slow != nil {
			answers <- answer{none, fault.slow}
			return
		}
		reply, err := f(locks)
		if reply.Clock > 0 {
			reply.Clock += s.ahead.Microseconds()
		}
		if err == nil && fault.after != nil {
			err = fault.after
		}
		if fault.answer != nil {
			<-fault.answer
		}
		answers <- answer{reply, err}
	}
	if hung == nil && fault.hold == nil && fault.answer == nil {
		perform()
	} else {
		go perform()
	}
	select {
	case a := <-answers:
		return a.reply, a.err
	default:
	}
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-cut:
		return none, errLost
	}
}

func (l link) Acquire(ctx context.Context, p quorum.Proposal) (quorum.Reply, error) {
	r := request{op: "acquire", name: p.Name, owner: p.Owner, fence: p.Token}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		if l.server.ahead > driver.FenceKeep { // the tokens are too old for its clock
			return quorum.Reply{Outcome: quorum.TooLow, Clock: time.Now().UnixMicro()}, nil
		}
		return m.Acquire(context.Background(), p)
	})
}

func (l link) Raise(ctx context.Context, req driver.RaiseRequest) (quorum.Reply, error) {
	r := request{op: "raise", name: req.Name, owner: req.Owner, fence: req.Floor}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Raise(context.Background(), req)
	})
}

func (l link) Extend(ctx context.Context, req driver.ExtendRequest) (quorum.Reply, error) {
	r := request{op: "extend", name: req.Name, owner: req.Owner}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Extend(context.Background(), req)
	})
}

func (l link) Release(ctx context.Context, req driver.ReleaseRequest, quiet bool) (quorum.Reply, error) {
	r := request{op: "release", name: req.Name, owner: req.Owner, tombstone: req.Tombstone, quiet: quiet}
	return call(ctx, l.server, r, func(m *quorum.Memory) (quorum.Reply, error) {
		reply, err := m.Release(context.Background(), req, quiet)
		if reply.Outcome == quorum.Released && !quiet {
			l.server.released(req.Name)
		}
		return reply, err
	})
}

func (l link) Inspect(ctx context.Context, name driver.Name) (quorum.Reply, error) {
	return call(ctx, l.server, request{op: "inspect", name: name}, func(m *quorum.Memory) (quorum.Reply, error) {
		return m.Inspect(context.Background(), name)
	})
}

func (l link) Listen(ctx context.Context, name driver.Name) (<-chan driver.Wake, func(), error) {
	s, wakes := l.server, make(chan driver.Wake, 1)
	_, err := call(ctx, s, request{op: "listen", name: name}, func(*quorum.Memory) (quorum.Reply, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters[wakes] = name
		return quorum.Reply{}, nil
	})
	return wakes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, wakes)
	}, err
}

func (l link) Close() error { return nil }
