package redisconn

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
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

// leave ends a call whose caller has left. ⚑ It closes the network connection alone. If go-redis takes
// back a connection whose client was closed, it prints a line on stderr.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left = true; c.wire != nil {
		_ = c.wire.Close()
	}
}
