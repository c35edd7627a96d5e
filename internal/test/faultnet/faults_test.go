package faultnet_test

import (
	"fmt"
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
