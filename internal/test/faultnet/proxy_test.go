package faultnet_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestProxy_forwardsTheEndFromEitherSide(t *testing.T) {
	t.Parallel()
	_, client, server := scripted(t)
	client.Close()
	server.wantEnd()

	_, client, server = scripted(t)
	client.send("QUIT")
	server.wantLines("*1", "$4", "QUIT")
	server.write("+OK\r\n")
	server.Close()
	client.wantLines("+OK")
	client.wantEnd()
}

func TestProxy_resetsWhatItCannotConnect(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	server.Kill()
	// The reset may come before the dial has returned.
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		wrap(t, c).wantReset()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("dial: %v, want a reset", err)
	}
	server.Restart()
	dial(t, p.Addr()).want("+PONG", "PING")
}

func TestProxy_cutPassesNothingUntilHealed(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	writer, reader := dial(t, p.Addr()), dial(t, p.Addr())
	writer.want("+PONG", "PING")
	reader.want("*3 $9 subscribe $7 channel :1", "SUBSCRIBE", "channel")

	p.Cut()
	writer.send("SET", "key", "value")
	mustDo(t, server, "1", "PUBLISH", "channel", "message")
	reader.wantSilence()
	writer.wantSilence()
	late := dial(t, p.Addr())
	late.send("SET", "late", "value")
	late.wantSilence()
	mustDo(t, server, "0", "EXISTS", "key", "late")

	p.Heal()
	writer.wantLines("+OK")
	reader.wantLines("*3", "$7", "message", "$7", "channel", "$7", "message")
	late.wantLines("+OK")
	mustDo(t, server, "2", "EXISTS", "key", "late")
}

func TestProxy_whatWasSentDuringACutArrivesThoughTheClientHasGone(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	c := dial(t, p.Addr())
	c.want("+PONG", "PING")
	p.Cut()
	c.send("SET", "key", "value")
	c.Close()
	mustDo(t, server, "0", "EXISTS", "key")
	p.Heal()
	servers.Await(t, 10*time.Second, "what was sent arrives", func() bool {
		got, err := server.Do("GET", "key")
		return got == "value" && err == nil
	})
}

func TestProxy_refusesAndComesBack(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	c := dial(t, p.Addr())
	c.want("+PONG", "PING")
	for range 2 {
		p.Refuse()
	}
	c.wantReset()
	if c, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, %v; want connection refused", c, err)
	}
	p.Heal()
	dial(t, p.Addr()).want("+PONG", "PING")
}

func TestProxy_latencyDelaysBothDirections(t *testing.T) {
	t.Parallel()
	const latency = 150 * time.Millisecond
	_, p := proxied(t)
	existing := dial(t, p.Addr())
	existing.want("+PONG", "PING")

	p.Latency(latency)
	start := time.Now()
	// Written one by one, they travel together.
	const pings = 100
	for range pings {
		existing.send("PING")
	}
	for range pings {
		existing.wantLines("+PONG")
	}
	if took := time.Since(start); took < 2*latency || took > pings/2*latency {
		t.Errorf("%d round trips took %v, want %v and little more", pings, took, 2*latency)
	}
	p.Latency(time.Hour)
	existing.send("PING")
	existing.wantSilence()
	p.Latency(0)
	existing.wantLines("+PONG")
	p.Latency(time.Hour)
	existing.send("PING") // still on its way at the end of the test
}

func TestProxy_passesWhatIsNotRESP(t *testing.T) {
	t.Parallel()
	p, client, server := scripted(t)
	for _, line := range []string{"hello", "*1", "*", "$-", "+"} {
		client.write(line + "\n")
		server.wantLines(line)
		server.write("\x00" + line + "\n")
		client.wantLines("\x00" + line)
	}

	dropped := p.DropReplies(faultnet.Containing("QUERY"))
	client.write("query\n")
	server.wantLines("query")
	server.write("row\n")
	client.wantReset()
	dropped.Wait(1)
}
