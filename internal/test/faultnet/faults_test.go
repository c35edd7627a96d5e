package faultnet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belugalock/belugalock/internal/test/faultnet"
)

func TestDropReplies_losesTheReplyToWhatWasExecuted(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	dropped := p.DropReplies(faultnet.Containing("incr"))
	for n := range 3 {
		c := dial(t, p.Addr())
		c.want("+PONG", "PING")
		c.send("INCR", "key")
		c.wantReset()
		dropped.Wait(n + 1)
		mustDo(t, server, fmt.Sprint(n+1), "GET", "key")
	}
	dropped.Stop()
	dial(t, p.Addr()).want(":4", "INCR", "key")
	if n := dropped.Count(); n != 3 {
		t.Errorf("%d replies dropped, want 3", n)
	}
}

func TestDropReplies_passesRepliesToWhatCameBefore(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	dropped := p.DropReplies(faultnet.Containing("incr"))
	c := dial(t, p.Addr())
	if _, err := c.Write([]byte(encode("SET", "a", "1") + encode("EVAL", "return {1, {2}}", "0") + encode("INCR", "a"))); err != nil {
		t.Fatal(err)
	}
	c.wantLines("+OK", "*2", ":1", "*1", ":2")
	c.wantReset()
	dropped.Wait(1)
	mustDo(t, server, "2", "GET", "a")
}

func TestDropReplies_tellsRepliesFromMessages(t *testing.T) {
	t.Parallel()
	for protocol, message := range map[string]string{
		"2": "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
		"3": ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
	} {
		p, client, server := scripted(t)
		dropped := p.DropReplies(faultnet.Containing("ping"))
		confirmed := strings.Replace(strings.Replace(message, "message", "subscribe", 1), "$7", "$9", 1)
		client.send("SUBSCRIBE", "c")
		server.wantLines("*2", "$9", "SUBSCRIBE", "$1", "c")
		server.write(confirmed)
		client.wantLines(message[:2], "$9", "subscribe", "$1", "c", "$2", "hi")

		client.send("PING")
		server.wantLines("*1", "$4", "PING")
		server.write(message)
		client.wantLines(message[:2], "$7", "message", "$1", "c", "$2", "hi")
		server.write("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		client.wantReset()
		dropped.Wait(1)
		if t.Failed() {
			t.Fatalf("with RESP %s", protocol)
		}
	}
}

func TestHoldRequests_deliversTheLatePacketOfAClientThatHasGone(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	held := p.HoldRequests(faultnet.First(2, faultnet.Containing("set")))
	patient, hasty := dial(t, p.Addr()), dial(t, p.Addr())
	patient.want("+PONG", "PING")
	patient.send("SET", "patient", "value")
	patient.send("SET", "behind", "value")
	hasty.send("SET", "hasty", "value")
	held.Wait(2)
	hasty.Close()
	patient.wantSilence()
	mustDo(t, server, "0", "EXISTS", "patient", "behind", "hasty")

	retry := dial(t, p.Addr())
	retry.want("+OK", "SET", "retry", "value")

	held.Release()
	mustDo(t, server, "2", "EXISTS", "patient", "hasty")
	patient.wantLines("+OK", "+OK")
	retry.want("+OK", "SET", "hasty", "again")
	if n := held.Count(); n != 2 {
		t.Errorf("%d requests held, want 2", n)
	}
}

func TestHoldRequests_releaseReturnsWhenTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	for _, loss := range []func(){p.Refuse, server.Kill} {
		held := p.HoldRequests(nil)
		c := dial(t, p.Addr())
		c.send("SET", "key", "value")
		held.Wait(1)
		loss()
		held.Release()
		p.Heal()
	}
}
