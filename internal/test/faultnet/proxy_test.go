package faultnet_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/belugalock/belugalock/internal/test/servers"
)

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
