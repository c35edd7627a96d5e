package redlock

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialPause is for how long a node is not dialed after a dial has failed. ⚑ A dial takes more time
// of the processor than a call, and each operation would dial a dead node anew.
const dialPause = 10 * time.Millisecond

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// withDialPause returns a dialer that returns the error of a failed dial again during the pause.
func withDialPause(dial dialer) dialer {
	var (
		mu     sync.Mutex
		failed error
		until  time.Time
	)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		err := failed
		if time.Now().After(until) {
			err = nil
		}
		mu.Unlock()
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil && ctx.Err() == nil { // else the caller has left, and the node may be well
			mu.Lock()
			failed, until = err, time.Now().Add(dialPause)
			mu.Unlock()
		}
		return conn, err
	}
}
