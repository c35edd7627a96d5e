package redisconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
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
	if _, err := s.holder(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if err := s.shared.Send(t.Context(), "", redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")); err != nil {
		t.Fatal(err)
	}
	before := connections()
	proxy.Latency(30 * time.Millisecond)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := s.holder(ctx, 9); err != nil {
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
		if _, err := s.holder(ctx, 9); !errors.Is(err, context.Canceled) {
			t.Errorf("the leaver: %v", err)
		}
	})
	held.Wait(1)
	cancel()
	leaver.Wait()
	held.Release()
	if _, err := s.holder(t.Context(), 9); err != nil {
		t.Error(err)
	}
	servers.Await(t, 10*time.Second, "another connection", func() bool {
		after := connections()
		return len(after) == 1 && after[0] != before[0]
	})
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
	s.shared.queueOf(keyOf(9)).patience = time.Millisecond
	if _, err := s.holder(t.Context(), 9); err != nil {
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
		all.Go(func() { _, _ = s.holder(ctx, 9) })
		time.Sleep(2 * time.Millisecond)
	}
	q := s.shared.queueOf(keyOf(9))
	servers.Await(t, 10*time.Second, "all connections in use", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.inFlight == 4 && len(q.pending) > 0
	})
}
