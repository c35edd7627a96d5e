package redisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestConns_failedAreClosed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	ping := redis.NewCmd(t.Context(), "ping")
	if err := transport.Send(t.Context(), "", ping); err != nil || ping.Err() == nil {
		t.Errorf("%v, %v", err, ping.Err())
	}
	if len(transport.queueOf("").idle) != 0 {
		t.Error("a connection that has failed is kept")
	}
}

// A slow reply costs no connection. A caller that leaves costs the one that it used.
func TestConns_closedByLeaversAlone(t *testing.T) {
	options, proxy := proxied(t)
	options.ClientName = "costs"
	s := open(t, options)
	connections := func() (ids []string) {
		list, err := servers.SharedServer().Do("CLIENT", "LIST")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name=costs ") {
				id, _, _ := strings.Cut(line, " ")
				ids = append(ids, id)
			}
		}
		return ids
	}
	if _, err := s.Inspect(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if err := s.shared.Send(t.Context(), "", redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")); err != nil {
		t.Fatal(err)
	}
	before := connections()
	proxy.Latency(30 * time.Millisecond)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.Inspect(ctx, name); err != nil {
			t.Error(err)
		}
		cancel()
	}
	// A pipeline needs no second connection.
	if after := connections(); len(before) != 1 || len(after) != 1 || after[0] != before[0] {
		t.Errorf("connections %v before slow replies, %v after", before, after)
	}
	proxy.Latency(0)
	held := proxy.HoldRequests(faultnet.First(1, faultnet.Containing("evalsha")))
	ctx, cancel := context.WithCancel(t.Context())
	var leaver sync.WaitGroup
	leaver.Go(func() {
		if _, err := s.Inspect(ctx, name); !errors.Is(err, context.Canceled) {
			t.Errorf("the leaver: %v", err)
		}
	})
	held.Wait(1)
	cancel()
	leaver.Wait()
	held.Release()
	if _, err := s.Inspect(t.Context(), name); err != nil {
		t.Error(err)
	}
	servers.Await(t, 10*time.Second, "another connection", func() bool {
		after := connections()
		return len(after) == 1 && after[0] != before[0]
	})
}

// leavingConn is a connection whose caller, if there is one, leaves when an answer has come. It shows the
// answer after the transport has closed it.
type leavingConn struct {
	net.Conn
	caller *atomic.Pointer[context.CancelFunc]
	closed chan struct{}
	once   sync.Once
}

func (c *leavingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if leave := c.caller.Load(); leave != nil && err == nil {
		(*leave)()
		<-c.closed
	}
	return n, err
}

func (c *leavingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// go-redis prints nothing if a caller leaves in the moment of its answer.
func TestConns_leaverMeetsAnswer_printsNothing(t *testing.T) {
	options := onNode(t)
	var caller atomic.Pointer[context.CancelFunc]
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &leavingConn{Conn: conn, caller: &caller, closed: make(chan struct{})}, err
	}
	s := open(t, options)
	if _, err := s.Inspect(t.Context(), name); err != nil { // to connect, and to load the script
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	caller.Store(&cancel)
	if _, err := s.Inspect(ctx, name); err != nil {
		t.Errorf("an answer that came does not count: %v", err)
	}
	if text := printed.String(); strings.Contains(text, "nexpected conn") {
		t.Errorf("go-redis printed %s", text)
	}
}

// A caller may leave just before a dial ends.
func TestConns_leaverDuringDial_isClosed(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return near, nil },
	})
	defer client.Close()
	c := newConn(client.Options())
	defer c.client.Close()
	c.closeWire()
	wire, err := c.client.Options().Dialer(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := wire.SetDeadline(time.Time{}); err == nil {
		t.Error("the connection is open")
	}
}

// A server that hangs gets no more connections than the pool of the application's client has.
func TestNodeQueue_connectionsAreBounded(t *testing.T) {
	options, proxy := proxied(t)
	options.PoolSize = 4
	s := open(t, options)
	s.shared.queueOf(keyOf(name)).patience = time.Millisecond
	if _, err := s.Inspect(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	held := proxy.HoldRequests(faultnet.Containing("evalsha"))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
		held.Release()
	}()
	for range 40 {
		all.Go(func() { _, _ = s.Inspect(ctx, name) })
		time.Sleep(2 * time.Millisecond)
	}
	q := s.shared.queueOf(keyOf(name))
	servers.Await(t, 10*time.Second, "all connections in use", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.inFlight == 4 && len(q.pending) > 0
	})
}
