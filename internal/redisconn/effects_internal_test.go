package redisconn

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// The network breaks at each of its operations in turn. A write whose error says that it has no effect has
// none, however the client of this version connects, pools and repeats.
func TestEffects_C_brokenAtEachOperation(t *testing.T) {
	server := servers.SharedServer()
	options := redis.UniversalOptions{Addrs: []string{server.Addr()}}
	sweepEffects(t, options, func(string) *servers.Redis { return server })
}

func TestEffects_C_brokenAtEachOperation_onCluster(t *testing.T) { sweepTopology(t, "cluster") }

func sweepTopology(t *testing.T, name string) {
	t.Helper()
	servers := servers.SharedTopology(name)
	options := redis.UniversalOptions{Addrs: servers.Addrs(), MasterName: servers.MasterName()}
	sweepEffects(t, options, servers.Master)
}

func sweepEffects(t *testing.T, options redis.UniversalOptions, master func(key string) *servers.Redis) {
	t.Helper()
	options.DialerRetries = 1
	for name, c := range map[string]struct {
		lasting bool
		repeats int
	}{
		"for a moment": {}, "for a moment, repeated": {repeats: 2}, "for good": {lasting: true, repeats: 1},
	} {
		t.Run(name, func(t *testing.T) {
			lost, unsent := 0, 0
			network := &brokenNetwork{lasting: c.lasting}
			options := options
			options.Dialer, options.MaxRetries, options.MaxRedirects = network.dial, c.repeats, c.repeats
			if c.repeats == 0 {
				options.MaxRetries, options.MaxRedirects = -1, -1 // 0 is the default
			}
			// The sweep ends with writes that all succeed. An unbroken network can fail too, on a busy machine.
			for n, failed := 0, true; failed || network.broke(); n++ {
				l := open(t, options)
				failed = false
				key := "{" + rand.Text() + "}"
				network.breakAt(n)
				for i, write := range []func(context.Context, string) error{l.writeAlone, l.writeTogether, l.writeAlone, l.writeTogether} {
					key := key + string(rune('a'+i))
					err := write(t.Context(), key)
					if err != nil {
						failed = true
					}
					found, doErr := master(key).Do("EXISTS", key)
					if doErr != nil {
						t.Fatal(doErr)
					}
					switch effect, may := found == "1", mayHaveEffect(err); {
					case err == nil && !effect:
						t.Errorf("operation %d, write %d: no error, and no effect", n, i)
					case err != nil && !may && effect:
						t.Errorf("operation %d, write %d took effect: %v", n, i, err)
					case may && effect:
						lost++
					case errors.Is(err, ErrNotDone):
						unsent++
					}
				}
			}
			if c.repeats == 0 && (lost == 0 || unsent == 0) {
				t.Errorf("%d writes lost their answers, %d were not sent", lost, unsent)
			}
		})
	}
}

// writeAlone sets a key by a script.
func (l *locks) writeAlone(ctx context.Context, key string) error {
	cmd, _ := takeScript.Run(ctx, l.shared, []string{key}, "v")
	return cmd.Err()
}

// writeTogether sets a key by the first command of a pipeline.
func (l *locks) writeTogether(ctx context.Context, key string) error {
	_, err := l.shared.Repeat(ctx, func() error {
		call := NewCall(ctx, 2, "set", key, "v")
		if err := l.shared.Send(ctx, key, call, redis.NewCmd(ctx, "pexpire", key, 60_000)); err != nil {
			return err
		}
		return call.Failure()
	})
	return err
}

// brokenNetwork fails one operation of all its connections, or all from that one. It carries out a Write and
// a Read, and loses their results. So the server has carried out each request that was written.
type brokenNetwork struct {
	lasting bool

	mu   sync.Mutex
	at   int // the operation that fails
	next int
}

var errBrokenNetwork = errors.New("the network of the test is broken")

// breakAt begins to count the operations.
func (n *brokenNetwork) breakAt(at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at, n.next = at, 0
}

// broke reports whether the operation was reached.
func (n *brokenNetwork) broke() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next > n.at
}

func (n *brokenNetwork) fails() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.next
	n.next++
	return now == n.at || n.lasting && now > n.at
}

func (n *brokenNetwork) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.fails() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errBrokenNetwork}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &breakingConn{conn, n}, nil
}

type breakingConn struct {
	net.Conn
	network *brokenNetwork
}

func (c *breakingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.network.fails() {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Conn.Read(make([]byte, 1)) // until the server has carried it out
		return 0, c.broken("write")
	}
	return n, err
}

func (c *breakingConn) Read(b []byte) (int, error) {
	fails := c.network.fails()
	n, err := c.Conn.Read(b)
	if fails {
		return 0, c.broken("read")
	}
	return n, err
}

func (c *breakingConn) broken(op string) error {
	_ = c.Close()
	return &net.OpError{Op: op, Net: "tcp", Err: errBrokenNetwork}
}
