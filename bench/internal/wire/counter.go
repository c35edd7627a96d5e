package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Counter counts the commands sent over the connections that its Dial has made, and the round trips. The
// zero value is ready for use, by many goroutines.
type Counter struct{ commands, trips atomic.Int64 }

// Commands returns how many commands were sent up to now.
func (c *Counter) Commands() int64 { return c.commands.Load() }

// Trips returns how many round trips there were up to now. Writes without a read between them are one.
func (c *Counter) Trips() int64 { return c.trips.Load() }

// Dial opens a connection whose commands are counted, with the timeouts that go-redis gives its own.
func (c *Counter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, counter: c}, nil
}

// counted is a connection that is listened to. It embeds the interface, not *net.TCPConn, whose
// other ways of writing would pass it by.
type counted struct {
	net.Conn
	counter *Counter
	wrote   atomic.Bool // since the last read

	mu      sync.Mutex // a connection may be written to by several goroutines
	scanner scanner
}

func (c *counted) Read(p []byte) (int, error) {
	c.wrote.Store(false)
	return c.Conn.Read(p)
}

func (c *counted) Write(p []byte) (int, error) {
	if !c.wrote.Swap(true) {
		c.counter.trips.Add(1)
	}
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if commands := c.scanner.scan(p[:n]); commands > 0 {
		c.counter.commands.Add(int64(commands))
	}
	return n, err
}

// SyscallConn lets go-redis look whether an idle connection is still open, as it does with those it
// has dialled itself.
func (c *counted) SyscallConn() (syscall.RawConn, error) {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}
