package faultnet

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// mode is what a proxy does with connections as such.
type mode int

const (
	open mode = iota
	cut
	refusing
)

// Proxy forwards TCP connections to one server, with the faults that a test has asked for. Its
// methods are safe for concurrent use; they report failures to the test that made it.
type Proxy struct {
	tb     testing.TB
	target string
	addr   string

	// gate is read-locked while bytes are sent, so nothing passes after Cut returns.
	gate    sync.RWMutex
	mode    mode
	latency time.Duration
	changed chan struct{} // closed and replaced by each change
	drops   []*Dropped
	holds   []*Held

	// What exists. It is taken before gate, and never while something is sent.
	mu       sync.Mutex
	listener net.Listener // nil while refusing, and once closed
	links    map[*link]struct{}
	closed   bool
	running  sync.WaitGroup // all goroutines
}

// New starts a proxy on a free port of 127.0.0.1 in front of target, a host and port. Without
// faults it only forwards. If the server cannot be reached, a connection is accepted and reset.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := newProxy(tb, target)
	if err != nil {
		tb.Fatalf("proxy for %s: %v", target, err)
	}
	tb.Cleanup(p.close)
	return p
}

func newProxy(tb testing.TB, target string) (*Proxy, error) {
	listener, err := servers.Listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{tb: tb, target: target, addr: listener.Addr().String(), changed: make(chan struct{}), links: make(map[*link]struct{})}
	p.listen(listener)
	return p, nil
}

// Addr returns the proxy's host and port. They stay the same.
func (p *Proxy) Addr() string { return p.addr }

// Cut makes the network a black hole, in both directions, until Heal. Connections stay open, and new
// ones are accepted, but nothing passes, not even an end. Bytes that a client sends on an older
// connection arrive after Heal, also if the client has gone. Connections that were opened and closed
// while cut leave no trace.
func (p *Proxy) Cut() {
	p.tb.Helper()
	p.set(cut)
}

// Refuse resets all connections and refuses new ones, until Heal or Cut.
func (p *Proxy) Refuse() {
	p.tb.Helper()
	p.set(refusing)
}

// Heal ends Cut and Refuse. It leaves the other faults as they are.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.set(open)
}

func (p *Proxy) set(m mode) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if m == refusing {
		p.reset()
	} else if p.listener == nil {
		l, err := p.listenAgain()
		if err != nil {
			p.tb.Errorf("proxy for %s: listen again after a refusal: %v", p.target, err)
			return
		}
		p.listen(l)
	}
	p.change(func() { p.mode = m })
}

// DropReplies loses replies: a request that matches is forwarded and executed, its reply is
// swallowed, and then the connection is reset. It lasts until Stop. In a transaction, it is EXEC
// that executes; the other replies only say "queued".
func (p *Proxy) DropReplies(match Match) *Dropped {
	d := newDropped(p.tb, match)
	p.drop(d)
	return d
}

// HoldRequests keeps the requests that match, and what their connections send after them, from the
// server until Release. The connections stay open; for the client, there is no answer.
func (p *Proxy) HoldRequests(match Match) *Held {
	h := newHeld(p.tb, match)
	p.hold(h)
	return h
}

// state returns the mode, and a channel that is closed when it changes.
func (p *Proxy) state() (mode, <-chan struct{}) {
	p.gate.RLock()
	defer p.gate.RUnlock()
	return p.mode, p.changed
}

// holding counts a request where it is held, and returns by whom.
func (p *Proxy) holding(request []byte) []*Held {
	p.gate.RLock()
	defer p.gate.RUnlock()
	var holding []*Held
	for _, h := range p.holds {
		if h.hold(request) {
			holding = append(holding, h)
		}
	}
	return holding
}

func (p *Proxy) drop(d *Dropped) { p.change(func() { p.drops = append(p.drops, d) }) }

func (p *Proxy) hold(h *Held) { p.change(func() { p.holds = append(p.holds, h) }) }

// Latency delays each request and each reply by d, so that a round trip takes 2d longer. It applies
// at once, also to existing connections and to bytes on their way.
func (p *Proxy) Latency(d time.Duration) {
	p.change(func() { p.latency = d })
}

// change makes a change and wakes the goroutines that wait for one.
func (p *Proxy) change(fn func()) {
	p.gate.Lock()
	defer p.gate.Unlock()
	fn()
	close(p.changed)
	p.changed = make(chan struct{})
}

// delay returns when the latency since a moment has passed, or false when ctx is done.
func (p *Proxy) delay(ctx context.Context, since time.Time) bool {
	for {
		p.gate.RLock()
		latency, changed := p.latency, p.changed
		p.gate.RUnlock()
		left := time.Until(since.Add(latency))
		if left <= 0 {
			return true
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// dial opens a connection to the server, through the proxy. Other than a connection to Addr, it
// fails as one to the server would.
func (p *Proxy) dial(ctx context.Context, network string) (net.Conn, error) {
	var server *net.TCPConn
	switch mode, _ := p.state(); mode {
	case refusing:
		err := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	case open:
		var err error
		if server, err = dialTCP(ctx, p.target); err != nil {
			return nil, err
		}
	}
	client, inner, err := connected(ctx)
	if err != nil {
		if server != nil {
			server.Close()
		}
		return nil, err
	}
	p.serve(inner, server)
	return client, nil
}

// connected returns both ends of a TCP connection: clients look into its socket.
func connected(ctx context.Context) (client, inner *net.TCPConn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if client, err = dialTCP(ctx, l.Addr().String()); err != nil {
		return nil, nil, err
	}
	c, err := l.Accept()
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, c.(*net.TCPConn), nil
}

func dialTCP(ctx context.Context, addr string) (*net.TCPConn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// listenAgain takes the port back that Refuse gave up.
func (p *Proxy) listenAgain() (l net.Listener, err error) {
	servers.Within(waitTimeout, func() bool {
		l, err = net.Listen("tcp", p.addr)
		return err == nil
	})
	return l, err
}

// listen accepts connections from l. It needs p.mu, unless p is not shared yet.
func (p *Proxy) listen(l net.Listener) {
	p.listener = l
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				p.serve(c.(*net.TCPConn), nil)
			}
		}
	})
}

// serve forwards between a client and the server, which is still to be connected to if it is nil.
func (p *Proxy) serve(client, server *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLink(p, client, server)
	if p.listener == nil {
		l.end(true)
		return
	}
	p.links[l] = struct{}{}
	p.running.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// reset resets all connections and refuses new ones. It needs p.mu.
func (p *Proxy) reset() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.end(true)
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.reset()
	p.mu.Unlock()
	p.running.Wait()
}
