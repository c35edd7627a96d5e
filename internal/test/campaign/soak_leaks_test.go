package campaign

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/belugalock/belugalock/internal/test/servers"
)

const (
	leakedBytes = 64 << 10
	leakedKeys  = 4
	leakedValue = 1 << 10
	leakedKey   = "leak:"
)

// leaks grow on purpose, so that the verdict finds something: one of each kind, every so many
// operations.
type leaks struct {
	t      testing.TB
	server *servers.Redis
	every  int64
	stop   chan struct{}
	ended  sync.WaitGroup

	mu    sync.Mutex
	heap  [][]byte
	conns []net.Conn
}

func newLeaks(t testing.TB, server *servers.Redis, every int64) *leaks {
	return &leaks{t: t, server: server, every: every, stop: make(chan struct{})}
}

// after is called with the number of operations that there were.
func (l *leaks) after(operations int64) {
	if l.every == 0 || operations%l.every != 0 {
		return
	}
	l.ended.Go(func() { <-l.stop })
	conn, err := net.Dial("tcp", l.server.Addr())
	if err != nil {
		l.t.Errorf("a connection to leak: %v", err)
		return
	}
	set := []string{"MSET"}
	for n := range leakedKeys {
		set = append(set, fmt.Sprint(leakedKey, operations, ":", n), strings.Repeat("x", leakedValue))
	}
	if _, err := l.server.Do(set...); err != nil {
		l.t.Errorf("a key to leak: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	l.heap = append(l.heap, make([]byte, leakedBytes))
}

// end plugs all leaks but those in Redis.
func (l *leaks) end() {
	close(l.stop)
	l.ended.Wait()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}
