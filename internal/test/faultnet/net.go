package faultnet

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Net is a network of proxies, one for each address that is dialled through it. Its faults apply to
// all of them, those to come included; the later of two calls counts. Its methods are safe for
// concurrent use.
type Net struct {
	tb testing.TB

	mu      sync.Mutex
	proxies map[string]*Proxy // by the servers' addresses
	faults  []func(*Proxy)    // all so far, for the proxies to come
	closed  bool
}

// NewNet makes a network without faults.
func NewNet(tb testing.TB) *Net {
	n := &Net{tb: tb, proxies: make(map[string]*Proxy)}
	tb.Cleanup(n.close)
	return n
}

// Dial opens a connection to the server at addr through its proxy, as the Dialer of all options of
// go-redis. It fails as a connection to the server itself would.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p, err := n.proxy(addr)
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, network)
}

// Only returns the proxy of one server, whose address is written as the clients dial it: for a node
// of servers, its Addr.
func (n *Net) Only(addr string) *Proxy {
	n.tb.Helper()
	p, err := n.proxy(addr)
	if err != nil {
		n.tb.Fatalf("proxy for %s: %v", addr, err)
	}
	return p
}

// Cut is that of Proxy, for all servers.
func (n *Net) Cut() { n.apply((*Proxy).Cut) }

// Refuse is that of Proxy, for all servers.
func (n *Net) Refuse() { n.apply((*Proxy).Refuse) }

// Heal is that of Proxy, for all servers.
func (n *Net) Heal() { n.apply((*Proxy).Heal) }

// Latency is that of Proxy, for all servers.
func (n *Net) Latency(d time.Duration) { n.apply(func(p *Proxy) { p.Latency(d) }) }

// DropReplies is that of Proxy, for all servers.
func (n *Net) DropReplies(match Match) *Dropped {
	d := newDropped(n.tb, match)
	n.apply(func(p *Proxy) { p.drop(d) })
	return d
}

// HoldRequests is that of Proxy, for all servers.
func (n *Net) HoldRequests(match Match) *Held {
	h := newHeld(n.tb, match)
	n.apply(func(p *Proxy) { p.hold(h) })
	return h
}

func (n *Net) apply(fault func(*Proxy)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, fault)
	for _, p := range n.proxies {
		fault(p)
	}
}

func (n *Net) proxy(addr string) (*Proxy, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, net.ErrClosed
	}
	if p, ok := n.proxies[addr]; ok {
		return p, nil
	}
	p, err := newProxy(n.tb, addr)
	if err != nil {
		return nil, err
	}
	for _, fault := range n.faults {
		fault(p)
	}
	n.proxies[addr] = p
	return p, nil
}

func (n *Net) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, p := range n.proxies {
		p.close()
	}
}
