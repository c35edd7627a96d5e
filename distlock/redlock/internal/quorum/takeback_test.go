package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The node says "not held" before the others do.
func TestExtend_lost_nothingTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[0].restart()
		servers[1].restart()
		servers[1].inject(on("extend", fault{hold: after(10 * time.Millisecond)}))
		servers[2].inject(on("extend", fault{hold: after(20 * time.Millisecond)}))
		before := len(servers[0].requests("acquire"))
		if reply := extend(t, d, req); reply.Held || reply.Err != nil {
			t.Errorf("%+v, want not held", reply)
		}
		time.Sleep(time.Second)
		if n := len(servers[0].requests("acquire")) - before; n != 0 {
			t.Errorf("%d acquires for a grant that is lost", n)
		}
	})
}

// Two nodes decide before the third one says "not held". It is asked once at a time.
func TestExtend_lateNotHeld_takenBack(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[1].restart()
		servers[1].inject(func(r request) fault {
			if r.op == "acquire" {
				return fault{hold: after(50 * time.Millisecond)}
			}
			return fault{hold: after(10 * time.Millisecond)}
		})
		before := len(servers[1].requests("acquire"))
		for range 2 {
			if !extend(t, d, req).Held {
				t.Error("lost with one node")
			}
		}
		time.Sleep(200 * time.Millisecond)
		if n := len(servers[1].requests("acquire")) - before; holders(t, servers) != 3 || n != 1 {
			t.Errorf("%d nodes hold the name after %d acquires", holders(t, servers), n)
		}
	})
}

// The attempt of a waiter has the third node for longer than the pause after the grant.
func TestGrant_bareQuorum_asksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].raw(t, "x", time.Now().UnixMicro(), 55*time.Millisecond)
		granted(t, d, newRequest())
		time.Sleep(500 * time.Millisecond)
		if n := holders(t, servers); n != 3 {
			t.Errorf("%d nodes hold the name", n)
		}
	})
}

func TestGrant_bareQuorum_asksTenTimes(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := len(servers[2].requests("acquire"))
		servers[2].raw(t, "x", time.Now().UnixMicro(), long)
		granted(t, d, newRequest())
		time.Sleep(time.Second)
		if n := len(servers[2].requests("acquire")) - before; n != 1+10 {
			t.Errorf("%d acquires at a node that another owner has", n)
		}
	})
}

func TestGrant_bareQuorum_orphanIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := len(servers[2].requests("acquire"))
		servers[2].raw(t, "x", time.Now().UnixMicro(), long)
		time.Sleep(time.Second)
		granted(t, d, newRequest())
		time.Sleep(time.Second)
		if n := len(servers[2].requests("acquire")) - before; n != 1+1 {
			t.Errorf("%d acquires at a node that an orphan has", n)
		}
	})
}

// The third node is years ahead: a raise of the grant would follow it.
func TestGrant_S2_nodeFarAhead_notTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		ahead := time.Now().Add(2 * time.Hour).UnixMicro()
		servers[2].raw(t, "x", ahead, 20*time.Millisecond)
		req := newRequest()
		first := granted(t, d, req)
		time.Sleep(time.Second)
		servers[2].fails(driver.ErrTemporary)
		reply, err := d.Raise(t.Context(), driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: first.FenceEnd + 1})
		if err != nil || reply.Fence >= ahead {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

func TestGrant_nodeADayAhead_askedOnceMore(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].ahead = 25 * time.Hour
		before := len(servers[2].requests("acquire"))
		granted(t, d, newRequest())
		time.Sleep(time.Second)
		if n := len(servers[2].requests("acquire")) - before; n != 1+1 {
			t.Errorf("%d acquires at a node that refuses by its clock", n)
		}
	})
}

func TestRaise_floorTooHigh_noEffect(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: driver.MaxFence - 1000}
		if _, err := d.Raise(t.Context(), raise); !errors.Is(err, driver.ErrFloor) {
			t.Errorf("%v, want ErrFloor", err)
		}
		raise.Floor = first.FenceEnd + 1
		if reply, err := d.Raise(t.Context(), raise); err != nil || reply.Fence > time.Now().Add(time.Second).UnixMicro() {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

func TestExtend_S1_unknownOwner_takesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		if reply := extend(t, d, newRequest()); reply.Held || reply.Err != nil {
			t.Errorf("%+v, want not held", reply)
		}
		time.Sleep(time.Second)
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
	})
}
