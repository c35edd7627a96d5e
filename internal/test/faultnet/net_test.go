package faultnet_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestNet_faultsApplyToAllServersAndThoseToCome(t *testing.T) {
	t.Parallel()
	network := faultnet.NewNet(t)
	servers := []*servers.Redis{servers.StartRedis(t), servers.StartRedis(t)}
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
	server := servers.StartRedis(t)
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

func through(t *testing.T, network *faultnet.Net, server *servers.Redis) *conn {
	t.Helper()
	c, err := network.Dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, c)
}
