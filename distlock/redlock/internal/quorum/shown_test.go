package quorum_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func raise(t *testing.T, d driver.Driver, req driver.AcquireRequest, floor int64) driver.RaiseReply {
	t.Helper()
	reply, err := d.Raise(t.Context(), driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: floor})
	if err != nil || !reply.Held {
		t.Fatalf("Raise: %+v, %v", reply, err)
	}
	return reply
}

// shownWithout is what a waiter sees that does not reach one of the servers.
func shownWithout(t *testing.T, d driver.Driver, out *server) driver.State {
	t.Helper()
	out.fails(driver.ErrTemporary)
	defer out.fails(nil)
	reply := acquire(t, d, newRequest())
	inspected, err := d.Inspect(t.Context(), name)
	if reply.Outcome != driver.Busy || err != nil || inspected.Fence != reply.State.Fence {
		t.Fatalf("Acquire: %+v; Inspect: %+v, %v", reply, inspected, err)
	}
	synctest.Wait()
	return reply.State
}

func TestRetake_S2_showsTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, waiter := ready(t, servers), ready(t, servers)
		servers[2].raw(t, "x", time.Now().UnixMicro(), 20*time.Millisecond)
		req := newRequest()
		req.Metadata = map[string]string{"traceparent": "x"}
		first := granted(t, d, req)
		time.Sleep(time.Second)
		if n := holders(t, servers); n != 3 {
			t.Fatalf("%d nodes hold the name", n)
		}
		if s := shownWithout(t, waiter, servers[0]); s.Fence != first.Fence || !maps.Equal(s.Metadata, req.Metadata) {
			t.Errorf("a waiter is shown %+v, want the token %d", s, first.Fence)
		}
		servers[1].fails(driver.ErrTemporary)
		second := raise(t, d, req, first.FenceEnd+1)
		synctest.Wait()
		servers[1].fails(nil)
		if s := shownWithout(t, waiter, servers[0]); s.Fence != second.Fence || !maps.Equal(s.Metadata, req.Metadata) {
			t.Errorf("a waiter is shown %+v, want the raised token %d", s, second.Fence)
		}
	})
}

// A session store refuses a waiter as deleted if the shown token is below that of a later Delete. The
// clocks of two nodes are ahead, and the process that deletes does not reach one of them.
func TestRetake_S2_shownBelowALaterRaise(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		servers[1].ahead, servers[2].ahead = 10*time.Second, 10*time.Second
		d, waiter := ready(t, servers), ready(t, servers)
		servers[2].raw(t, "x", time.Now().Add(10*time.Second).UnixMicro(), 20*time.Millisecond)
		req := newRequest()
		granted(t, d, req)
		time.Sleep(time.Second)
		awaited := shownWithout(t, waiter, servers[0]).Fence
		release(t, d, req)
		synctest.Wait()
		servers[2].fails(driver.ErrTemporary)
		fresh, later := newDriver(t, servers), newRequest()
		grant := granted(t, fresh, later)
		if deletion := raise(t, fresh, later, grant.FenceEnd+1); awaited >= deletion.Fence {
			t.Errorf("a waiter was shown %d before a raise to %d", awaited, deletion.Fence)
		}
		servers[2].fails(nil)
	})
}

// Two Extends find that the third node has lost the grant. The answer to the second one comes during
// a Raise, which the third node has carried out.
func TestRaise_S2_noRetakeUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, waiter := ready(t, servers), ready(t, servers)
		req := newRequest()
		first := granted(t, d, req)
		synctest.Wait()
		servers[2].restart()
		servers[2].inject(on("acquire", fault{hold: after(5 * time.Millisecond)}))
		for range 2 {
			if !extend(t, d, req).Held {
				t.Error("lost with one node")
			}
			synctest.Wait()
			servers[2].inject(on("extend", fault{answer: after(30 * time.Millisecond)}))
		}
		time.Sleep(10 * time.Millisecond)
		servers[0].inject(on("raise", fault{hold: after(40 * time.Millisecond)}))
		servers[1].inject(on("raise", fault{before: driver.ErrTemporary}))
		second := raise(t, d, req, first.FenceEnd+1)
		time.Sleep(time.Second)
		if s := shownWithout(t, waiter, servers[0]); s.Fence != second.Fence {
			t.Errorf("a waiter is shown the token %d after a raise to %d", s.Fence, second.Fence)
		}
	})
}

// The answers to the first Raise come after those to the second one.
func TestRaise_S2_twoAtOnce_theHigherStays(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		for _, s := range servers {
			s.inject(on("raise", fault{answer: after(20 * time.Millisecond)}))
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			raise(t, d, req, first.FenceEnd+1)
		}()
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			s.inject(nil)
		}
		higher := raise(t, d, req, first.FenceEnd+time.Hour.Microseconds())
		<-ended
		if again := granted(t, d, req); again.Fence != higher.Fence {
			t.Errorf("the grant has the token %d after a raise to %d", again.Fence, higher.Fence)
		}
	})
}
