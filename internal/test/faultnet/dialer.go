package faultnet

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// DialFunc opens a connection, as the DialContext of net.Dialer and the Dialer of redis.Options do.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns a dial function whose connections call hook before each Read and Write, with its
// number from 0, over all connections of this dialer. If hook returns an error, it is the
// operation's, and nothing is read or written. A nil dial means a net.Dialer's.
func Dialer(dial DialFunc, hook func(n int) error) DialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	var n atomic.Int64
	before := func() error { return hook(int(n.Add(1)) - 1) }
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		hooked := &hookedConn{Conn: c, before: before}
		// Clients look into the socket of an idle connection, if it has one.
		if s, ok := c.(syscall.Conn); ok {
			return struct {
				*hookedConn
				syscall.Conn
			}{hooked, s}, nil
		}
		return hooked, nil
	}
}

type hookedConn struct {
	net.Conn
	before func() error
}

func (c *hookedConn) Read(b []byte) (int, error) {
	if err := c.before(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *hookedConn) Write(b []byte) (int, error) {
	if err := c.before(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
