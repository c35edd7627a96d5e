package redisconn

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// idleFor is how long a connection stays open without use.
	idleFor = time.Minute
	// masterFor is how long a connection lives if Sentinels name the master. The connection does
	// not learn of a failover. It asks the Sentinels when it connects.
	masterFor = time.Second
)

// conns are connections to one node, apart from those of the application's client. A pool that the
// application has used up thus delays no call. Each connection is a client of go-redis with a pool
// of one.
//
// ⚑ go-redis may read on after the context has ended. The end of the context therefore closes the
// connection, and the call ends with it, in the goroutine of its caller.
//
// A dial that fails is not repeated here, but with its call, see Transport.Repeat. The pauses of go-redis
// would outlast a probe.
type conns struct {
	options redis.Options
	slots   chan struct{} // as many as the pool of the application's client has

	mu     sync.Mutex
	idle   []*conn // the last one was used last
	sweep  *time.Timer
	closed bool
}

type conn struct {
	client *redis.Client
	used   time.Time

	mu   sync.Mutex
	wire net.Conn // the last one of the client
	left bool
}

// leave ends a call whose caller has left. ⚑ It closes the network connection alone. If go-redis takes
// back a connection whose client was closed, it prints a line on stderr.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left = true; c.wire != nil {
		_ = c.wire.Close()
	}
}

func newConns(client *redis.Options) *conns {
	options := connOptions(client)
	options.DialerRetries = 1
	return &conns{options: options, slots: make(chan struct{}, client.PoolSize)}
}

// connOptions are the options of one connection like those of a client.
func connOptions(client *redis.Options) redis.Options {
	options := *client
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	// ⚑ No second pool for pipelines. Before v9.23 the size of a buffer asks for one. Since then each
	// client has one, unless its size is negative.
	options.PipelineReadBufferSize, options.PipelineWriteBufferSize, options.PipelinePoolSize = 0, 0, -1
	options.MaxRetries, options.ContextTimeoutEnabled = -1, false
	// ⚑ A client makes 0 of -1, and -1 of -2. Another client takes 0 for the default.
	if options.ReadTimeout <= 0 {
		options.ReadTimeout--
	}
	if options.WriteTimeout <= 0 {
		options.WriteTimeout--
	}
	// The application has its handlers, its cache and its limiter for its own client.
	options.PushNotificationProcessor, options.Limiter = nil, nil
	options.ClientSideCache, options.ClientSideCacheConfig = nil, nil
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if options.Addr == sentinelAddr {
		options.ConnMaxLifetime, options.ConnMaxLifetimeJitter = masterFor, 0
	}
	return options
}

// exec sends commands over a connection. The first failure closes the connection. If exec fails,
// nothing was sent: ctx has ended before a connection was free, or the transport is closed.
func (p *conns) exec(ctx context.Context, cmds []redis.Cmder) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return notSent(ctx.Err())
	}
	c := p.take()
	if c == nil {
		return notSent(redis.ErrClosed)
	}
	stop := context.AfterFunc(ctx, c.leave)
	healthy := false
	defer func() {
		if stop() && healthy {
			p.put(c)
		} else {
			_ = c.client.Close()
		}
	}()
	exec(ctx, c.client, cmds)
	healthy = !slices.ContainsFunc(cmds, isUnanswered)
	return nil
}

// take returns nil after close.
func (p *conns) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if last := len(p.idle) - 1; last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		return c
	}
	c, options := &conn{}, p.options
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		wire, err := p.options.Dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.wire = wire; c.left {
			_ = wire.Close()
		}
		return wire, nil
	}
	c.client = redis.NewClient(&options)
	return c
}

func (p *conns) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.client.Close()
		return
	}
	c.used = time.Now()
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleFor, p.closeIdle)
	}
}

// closeIdle closes the connections without use.
func (p *conns) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 && (p.closed || time.Since(p.idle[0].used) >= idleFor) {
		_ = p.idle[0].client.Close()
		p.idle = p.idle[1:]
	}
	p.sweep = nil
	if len(p.idle) > 0 {
		p.sweep = time.AfterFunc(idleFor, p.closeIdle)
	}
}

func (p *conns) close() {
	p.mu.Lock()
	p.closed = true
	if p.sweep != nil {
		p.sweep.Stop()
	}
	p.mu.Unlock()
	p.closeIdle()
}
