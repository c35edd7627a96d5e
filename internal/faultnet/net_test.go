package faultnet_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestNet_faultsApplyToAllServersAndThoseToCome(t *testing.T) {
	t.Parallel()
	network := faultnet.NewNet(t)
	servers := []*testservers.Redis{testservers.StartRedis(t), testservers.StartRedis(t)}
	first := through(t, network, servers[0])
	first.want("+PONG", "PING")

	dropped := network.DropReplies(faultnet.Containing("incr"))
	held := network.HoldRequests(faultnet.Containing("set"))
	network.Latency(silence)
	second := through(t, network, servers[1])
	for _, c := range []*conn{first, second} {
		start := time.Now()
		c.want("+PONG", "PING")
		if took := time.Since(start); took < 2*silence {
			t.Errorf("round trip took %v, want %v", took, 2*silence)
		}
		c.send("SET", "key", "value")
	}
	network.Latency(0)
	held.Wait(2)
	held.Release()
	for _, c := range []*conn{first, second} {
		c.wantLines("+OK")
	}

	network.Cut()
	first.send("INCR", "n")
	first.wantSilence()
	network.Only(servers[1].Addr()).Heal()
	second.send("INCR", "n")
	second.wantReset()
	dropped.Wait(1)
	network.Heal()
	first.wantReset()
	dropped.Wait(2)
	for _, server := range servers {
		mustDo(t, server, "1", "GET", "n")
	}
	dropped.Stop()
	through(t, network, servers[0]).want(":2", "INCR", "n")
}

func TestNet_dialFailsAsAtTheServer(t *testing.T) {
	t.Parallel()
	network := faultnet.NewNet(t)
	server := testservers.StartRedis(t)
	refused := func(when string) {
		t.Helper()
		c, err := network.Dial(t.Context(), "tcp", server.Addr())
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial %s: %v, %v; want connection refused", when, c, err)
		}
	}
	network.Refuse()
	refused("while refused, the first")
	refused("while refused")
	network.Heal()
	through(t, network, server).want("+PONG", "PING")
	server.Kill()
	refused("with the server dead")
	server.Restart()
	through(t, network, server).want("+PONG", "PING")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := network.Dial(cancelled, "tcp", server.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with a cancelled context: %v", err)
	}
	network.Cut()
	if _, err := network.Dial(cancelled, "tcp", server.Addr()); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with a cancelled context, while cut: %v", err)
	}
}

func TestNet_dialsNothingAfterTheTest(t *testing.T) {
	server := testservers.StartRedis(t)
	var network *faultnet.Net
	t.Run("", func(t *testing.T) { network = faultnet.NewNet(t) })
	if c, err := network.Dial(t.Context(), "tcp", server.Addr()); err == nil {
		c.Close()
		t.Error("a network that has ended connects")
	}
}

func TestNet_standsBetweenAClientAndItsCluster(t *testing.T) {
	t.Parallel()
	cluster := testservers.StartCluster(t)
	network := faultnet.NewNet(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:        cluster.Addrs()[:1],
		Dialer:       network.Dial,
		ReadTimeout:  300 * time.Millisecond,
		MaxRedirects: -1,
	})
	defer client.Close()
	keys := make(map[*testservers.Redis]string)
	for i := 0; len(keys) < 3; i++ {
		key := fmt.Sprint(i)
		keys[cluster.MasterOf(key)] = key
	}
	var cutOff *testservers.Redis
	for master, key := range keys {
		cutOff = master
		if err := client.Set(t.Context(), key, "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}

	network.Only(cutOff.Addr()).Cut()
	for master, key := range keys {
		if err := client.Get(t.Context(), key).Err(); (err != nil) != (master == cutOff) {
			t.Errorf("GET at %s with %s cut off: %v", master.Addr(), cutOff.Addr(), err)
		}
	}
	network.Cut()
	for _, key := range keys {
		if client.Get(t.Context(), key).Err() == nil {
			t.Error("GET works with all nodes cut off")
		}
	}
	network.Heal()
	for _, key := range keys {
		if err := client.Get(t.Context(), key).Err(); err != nil {
			t.Errorf("GET after Heal: %v", err)
		}
	}
}

func TestNet_standsBetweenAClientAndItsSentinel(t *testing.T) {
	t.Parallel()
	sentinel := testservers.StartSentinel(t)
	network := faultnet.NewNet(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    sentinel.MasterName(),
		SentinelAddrs: sentinel.Addrs(),
		Dialer:        network.Dial,
		MaxRetries:    -1,
	})
	defer client.Close()
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}

	dropped := network.DropReplies(faultnet.First(1, faultnet.Containing("incr")))
	if err := client.Incr(t.Context(), "n").Err(); err == nil {
		t.Error("INCR returned, though its reply was dropped")
	}
	dropped.Wait(1)
	if n, err := client.Incr(t.Context(), "n").Result(); n != 2 || err != nil {
		t.Errorf("second INCR: %d, %v; want 2", n, err)
	}
	network.Refuse()
	if err := client.Get(t.Context(), "key").Err(); err == nil { // on the connection that was there
		t.Error("GET works")
	}
	if err := client.Get(t.Context(), "key").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("GET: %v, want a refused connection", err)
	}
}

func through(t *testing.T, network *faultnet.Net, server *testservers.Redis) *conn {
	t.Helper()
	c, err := network.Dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, c)
}
