package redisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
)

// A connection has the options of the application's client, but for its pool and its repetitions.
func TestConnOptions(t *testing.T) {
	cache := redis.CacheConfig{MaxEntries: 1}
	options := redis.Options{
		PoolSize: 30, MaxIdleConns: 20, MaxActiveConns: 40, MaxRetries: 5, Password: "p", DB: 3, ClientName: "n",
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
		ContextTimeoutEnabled: true, PipelineReadBufferSize: 1 << 20, DialerRetries: 7,
		ClientSideCacheConfig: &cache, ClientSideCache: redis.NewLocalCache(cache), Limiter: struct{ redis.Limiter }{},
	}
	follower := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, Password: "p", DB: 3, ClientName: "n", PoolSize: 30,
		ReadTimeout: -1, WriteTimeout: -2, ConnMaxLifetime: time.Hour, ConnMaxLifetimeJitter: time.Minute,
	})
	node := redis.NewClient(&options)
	for name, c := range map[string]struct {
		client       *redis.Client
		life, jitter time.Duration
	}{
		"a node":   {node, time.Hour, time.Minute},
		"Sentinel": {follower, masterFor, 0},
	} {
		client := c.client
		defer client.Close()
		client.Options().MinIdleConns = 1 // now, so that it connects to nothing
		p := newConns(client.Options())
		own := p.take().client
		defer own.Close()
		o, of := own.Options(), client.Options()
		if o.PoolSize != 1 || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 || o.MaxRetries != 0 ||
			o.PipelineReadBufferSize != 0 || o.PipelinePoolSize >= 0 || o.ContextTimeoutEnabled || o.ReadTimeout != of.ReadTimeout ||
			o.WriteTimeout != of.WriteTimeout || o.ConnMaxLifetime != c.life || o.ConnMaxLifetimeJitter != c.jitter ||
			o.DialerRetries != 1 || o.ClientSideCache != nil || o.ClientSideCacheConfig != nil || o.Limiter != nil ||
			o.Password != "p" || o.DB != 3 || o.ClientName != "n" || cap(p.slots) != 30 ||
			o.PushNotificationProcessor == of.PushNotificationProcessor ||
			o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A connection without use is closed, and those in use are not.
func TestConns_idleAreClosed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	synctest.Test(t, func(t *testing.T) {
		p := newConns(client.Options())
		defer p.close()
		idle, busy := p.take(), p.take()
		p.put(idle)
		time.Sleep(idleFor - time.Second)
		if idle.client.Ping(cancelled).Err() == redis.ErrClosed {
			t.Error("a connection was closed too early")
		}
		p.put(busy)
		if p.take() != busy {
			t.Error("a call does not take the connection that was used last")
		}
		time.Sleep(time.Second + time.Millisecond)
		if idle.client.Ping(cancelled).Err() != redis.ErrClosed {
			t.Error("a connection without use is still open")
		}
		if busy.client.Ping(cancelled).Err() == redis.ErrClosed {
			t.Error("a connection in use was closed")
		}
		p.close()
		p.put(busy)
		if busy.client.Ping(cancelled).Err() != redis.ErrClosed {
			t.Error("a connection is open after the end")
		}
	})
}

var cancelled = noWait

func TestConns_failedAreClosed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	p := newConns(client.Options())
	defer p.close()
	ping := redis.NewCmd(t.Context(), "ping")
	if err := p.exec(t.Context(), []redis.Cmder{ping}); err != nil || ping.Err() == nil {
		t.Errorf("%v, %v", err, ping.Err())
	}
	if len(p.idle) != 0 {
		t.Error("a connection that has failed is kept")
	}
}

// A client that follows Sentinels learns of a failover, and the connections of a transport do not.
func TestTransport_S1_followsFailovers(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer client.Close()
	transport := New(client, nil)
	defer transport.Close()
	if transport.exchange("k").conns != nil {
		t.Error("calls go over connections of the transport")
	}
	client.Options().PoolSize = 0 // used up
	if transport.exchange("k").conns == nil {
		t.Error("calls go over a client without a free connection")
	}
}

// A slow reply costs no connection. A caller that leaves costs the one that it used.
func TestConns_closedByLeaversAlone(t *testing.T) {
	options, proxy := proxied(t)
	options.ClientName = "costs"
	s := open(t, options)
	connections := func() (ids []string) {
		list, err := testservers.SharedServer().Do("CLIENT", "LIST")
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
	if err := s.shared.InOrder(t.Context(), "", redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")); err != nil {
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
	testservers.Await(t, 10*time.Second, "another connection", func() bool {
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
	c := newConns(client.Options()).take()
	defer c.client.Close()
	c.leave()
	wire, err := c.client.Options().Dialer(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := wire.SetDeadline(time.Time{}); err == nil {
		t.Error("the connection is open")
	}
}

// A server that hangs gets no more connections than the pool of the application's client has.
func TestExchange_connectionsAreBounded(t *testing.T) {
	options, proxy := proxied(t)
	options.PoolSize = 4
	s := open(t, options)
	s.shared.exchange(keyOf(name)).patience = time.Millisecond
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
	x := s.shared.exchange(keyOf(name))
	testservers.Await(t, 10*time.Second, "all connections in use", func() bool { return len(x.conns.slots) == 4 })
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.underway != 4 || len(x.pending) == 0 {
		t.Errorf("%d exchanges, %d calls pending", x.underway, len(x.pending))
	}
}
