package redisconn

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// conn is a connection to a node: a client of go-redis with a pool of one.
//
// ⚑ go-redis may read on after the ctx of a call has ended. The end of the ctx therefore closes the network
// connection, and the call ends with it, in the goroutine of its caller. A goroutine for each call costs
// 15 to 20 µs of a call of 28 µs.
type conn struct {
	client *redis.Client

	mu   sync.Mutex
	wire net.Conn // the last one of the client
	left bool
}

func newConn(like *redis.Options) *conn {
	c, options := &conn{}, *like
	options.PoolSize, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		wire, err := like.Dialer(ctx, network, addr)
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

// closeWire ends a call whose caller has left. ⚑ It closes the network connection alone. If go-redis takes
// back a connection whose client was closed, it prints a line on stderr.
func (c *conn) closeWire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left = true; c.wire != nil {
		_ = c.wire.Close()
	}
}

// masterFor is how long a connection lives if Sentinels name the master. The connection does not learn
// of a failover. It asks the Sentinels when it connects.
const masterFor = time.Second

// ownOptions are the options of a connection of the transport, apart from those of the application's client.
// A pool that the application has used up thus delays no call.
func ownOptions(client *redis.Options) *redis.Options {
	options := *client
	options.MinIdleConns = 0
	// ⚑ No second pool for pipelines. Before v9.23 the size of a buffer asks for one. Since then each
	// client has one, unless its size is negative.
	options.PipelineReadBufferSize, options.PipelineWriteBufferSize, options.PipelinePoolSize = 0, 0, -1
	// Transport.Repeat repeats a call, and also its dial. The pauses of go-redis would outlast a probe.
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, false
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
	return &options
}
