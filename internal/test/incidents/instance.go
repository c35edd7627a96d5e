package incidents

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// instance is one instance of an application, with its own network.
type instance struct {
	name   string
	net    *network
	client *redis.Client
	locker *distlock.Locker
	memory *lockedmemory.LockedMemory[string, string]
	refuse *lockedmemory.LockedMemory[string, string] // does not wait
	tracer trace.Tracer
}

func newInstance(s *stage, addr, name string) (*instance, error) {
	var to Telemetry
	if s.opts.Telemetry != nil {
		to = s.opts.Telemetry(name)
	}
	if to.Logger == nil {
		to.Logger = slog.New(slog.DiscardHandler)
	}
	if to.Tracer == nil {
		to.Tracer = noop.NewTracerProvider().Tracer("")
	}
	i := &instance{name: name, net: new(network), tracer: to.Tracer}
	i.client = redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, Dialer: i.net.dial,
		DialerRetries: 1, DialerRetryTimeout: time.Millisecond, MinRetryBackoff: time.Millisecond,
		MaxRetryBackoff: time.Millisecond})
	options := &distlock.Options{Namespace: s.namespace, Holder: name, TTL: 20 * time.Second,
		RenewEvery: 200 * time.Millisecond, Wait: time.Minute,
		Observer: distlock.Observers(&witness{s.watch, name}, to.Observer, panics{}),
		Logger:   slog.New(&lines{to.Logger.Handler(), s.watch})}
	if name == Paused {
		options.RenewEvery = 9 * time.Second // none happens in the scene
	}
	var err error
	if i.locker, err = redislock.New(i.client, options); err != nil {
		return nil, err
	}
	store, err := redisstore.New(i.client, lockedmemory.SessionKey, sessionstore.JSON[string]{},
		&storedriver.Retention{Namespace: s.namespace + "-session"}, nil)
	if err != nil {
		return nil, err
	}
	i.memory, err = lockedmemory.New(store, i.locker, lockedmemory.SessionKey, nil)
	if err != nil {
		return nil, err
	}
	i.refuse, err = lockedmemory.New(store, i.locker, lockedmemory.SessionKey,
		&lockedmemory.Options{Busy: lockedmemory.Refuse})
	return i, err
}

// message runs fn in a trace of its own, with the session in its context.
func (i *instance) message(ctx context.Context, key string,
	fn func(ctx context.Context, trace trace.TraceID) error) error {
	ctx, span := i.tracer.Start(lockedmemory.WithSession(ctx, key), "message", trace.WithNewRoot())
	defer span.End()
	return fn(ctx, span.SpanContext().TraceID())
}

// network is the network of an instance. A fault applies to all connections, also to those that exist.
type network struct {
	mu    sync.Mutex
	fault fault
	conns []*conn
}

type fault int

const (
	none         fault = iota
	down               // no connection, and none can be made
	deaf               // requests arrive, answers do not
	unsubscribed       // no subscription
)

var errNetwork = errors.New("the network of the scene is down")

func (n *network) set(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
	if f == down {
		for _, c := range n.conns {
			_ = c.Close()
		}
		n.conns = nil
	}
}

func (n *network) is(f fault) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault == f
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.is(down) {
		return nil, errNetwork
	}
	inner, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{inner, n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault == down { // since
		_ = c.Close()
		return nil, errNetwork
	}
	n.conns = append(n.conns, c)
	return c, nil
}

type conn struct {
	net.Conn
	network *network
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.network.is(deaf) {
		_ = c.Close()
		return 0, errNetwork
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.network.is(unsubscribed) && strings.Contains(strings.ToLower(string(b)), "subscribe") {
		_ = c.Close()
		return 0, errNetwork
	}
	return c.Conn.Write(b)
}
