package redlock

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// dialPause is for how long a node is not dialed after a dial has failed. ⚑ A dial takes more time
// of the processor than a call, and each operation would dial a dead node anew.
const dialPause = 10 * time.Millisecond

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

type failedDial struct {
	err error
	at  time.Time
}

// withDialPause returns a dialer that returns the error of a failed dial again during the pause.
func withDialPause(dial dialer) dialer {
	var last atomic.Pointer[failedDial]
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failed := last.Load(); failed != nil && time.Since(failed.at) <= dialPause {
			return nil, failed.err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil && ctx.Err() == nil { // else the caller has left, and the node may be well
			last.Store(&failedDial{err, time.Now()})
		}
		return conn, err
	}
}
