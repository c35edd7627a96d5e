package redisconn

import (
	"context"
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
}

func newConns(client *redis.Options) *conns {
	return &conns{options: connOptions(client), slots: make(chan struct{}, client.PoolSize)}
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
	// The application has registered its handlers for its own client.
	options.PushNotificationProcessor = nil
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
	stop := context.AfterFunc(ctx, func() { _ = c.client.Close() })
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
	options := p.options
	return &conn{client: redis.NewClient(&options)}
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
