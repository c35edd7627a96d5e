package quorum_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// other is a request for another name.
func other(key string) driver.AcquireRequest {
	req := newRequest()
	req.Name.Key = key
	return req
}

func TestInspect_timelyNodes_count(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		token := time.Now().UnixMicro()
		for i, s := range servers {
			s.raw(t, "x", token, time.Duration(i+1)*10*time.Second)
		}
		servers[2].inject(on("inspect", fault{hold: after(60 * time.Millisecond)}))
		if state, err := d.Inspect(t.Context(), name); err != nil || state.TTL < 15*time.Second {
			t.Errorf("%+v, %v; want the time for which two nodes hold the name", state, err)
		}
	})
}

func TestInspect_hungNode_awaitedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		defer servers[2].hang()()
		for _, most := range []time.Duration{100 * time.Millisecond, 0} {
			start := time.Now()
			if _, err := d.Inspect(t.Context(), name); err != nil || time.Since(start) > most {
				t.Errorf("%v after %s, want %s", err, time.Since(start), most)
			}
			time.Sleep(time.Millisecond) // then the node is silent
		}
	})
}

// A loser that waits for the node keeps the nodes that it has from the winner.
func TestAcquire_L_nodeIsAway_noWaitInContention(t *testing.T) {
	for what, leave := range map[string]func(t *testing.T, s *server, d driver.Driver){
		"it hangs": func(t *testing.T, s *server, d driver.Driver) {
			t.Cleanup(s.hang())
			granted(t, d, other("before"))
			time.Sleep(200 * time.Millisecond)
		},
		"its last call failed": func(t *testing.T, s *server, d driver.Driver) {
			s.fails(driver.ErrNotDone)
			granted(t, d, other("before"))
			synctest.Wait()
			s.fails(nil)
			s.inject(delayed(50 * time.Millisecond))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, servers []*server) {
				d := ready(t, servers)
				leave(t, servers[2], d)
				servers[0].raw(t, "x", time.Now().UnixMicro(), long)
				start := time.Now()
				if reply := acquire(t, d, newRequest()); reply.Outcome != driver.Busy || time.Since(start) > 10*time.Millisecond {
					t.Errorf("%+v after %s", reply, time.Since(start))
				}
			})
		})
	}
}

// The third node answers later than 100 ms after the others, and in less than three times their
// time.
func TestAcquire_distantNode_awaitedInContention(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[0].raw(t, "x", time.Now().UnixMicro(), long)
		for i, delay := range []time.Duration{100, 100, 250} {
			servers[i].inject(on("acquire", fault{hold: after(delay * time.Millisecond)}))
		}
		granted(t, d, newRequest())
	})
}

// The first question waits for the node that hangs, and the further ones do not.
func TestAcquire_L_splitVote_asksAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].raw(t, "x", time.Now().UnixMicro(), 130*time.Millisecond)
		defer servers[2].hang()()
		start := time.Now()
		granted(t, d, newRequest())
		if took := time.Since(start); took > 170*time.Millisecond {
			t.Errorf("the grant took %s", took)
		}
	})
}

// A token of a longer race would be behind the clock.
func TestAcquire_splitVote_endsAtHalfOfTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].raw(t, "x", time.Now().UnixMicro(), 22*time.Millisecond)
		servers[2].fails(driver.ErrNotDone)
		req := newRequest()
		req.TTL = 30 * time.Millisecond
		if reply := acquire(t, d, req); reply.Outcome != driver.Busy {
			t.Errorf("%+v", reply)
		}
	})
}

func TestAcquire_allNodesHang_endsInTime(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		for _, s := range servers {
			defer s.hang()()
		}
		for ttl, want := range map[time.Duration]time.Duration{time.Second: time.Second, long: 2 * time.Second} {
			req := newRequest()
			req.TTL = ttl
			start := time.Now()
			_, err := d.Acquire(t.Context(), req)
			if took := time.Since(start); !driver.MayHaveEffect(err) || took < want || took > want+300*time.Millisecond {
				t.Errorf("%v after %s, with a TTL of %s", err, took, ttl)
			}
		}
	})
}

func TestAcquire_S1_releasedWhileUnderWay_notGranted(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		for _, s := range servers {
			s.inject(on("acquire", fault{hold: after(10 * time.Millisecond)}))
		}
		req := newRequest()
		done := make(chan driver.AcquireReply)
		go func() { done <- acquire(t, d, req) }()
		time.Sleep(5 * time.Millisecond)
		if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner}); err != nil {
			t.Error(err)
		}
		if reply := <-done; reply.Outcome == driver.Granted {
			t.Errorf("%+v after a release", reply)
		}
		synctest.Wait()
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
	})
}

// The attempt has the lowest node of a split vote, and asks the others again.
func TestAcquire_S1_noRequestFollowsARelease(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		token := time.Now().UnixMicro()
		servers[1].raw(t, "x", token, long)
		servers[2].raw(t, "y", token, long)
		req, done := newRequest(), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = d.Acquire(t.Context(), req)
		}()
		time.Sleep(2 * time.Millisecond)
		if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Tombstone: long}); err != nil {
			t.Error(err)
		}
		before := len(servers[1].requests("acquire"))
		<-done
		if n := len(servers[1].requests("acquire")) - before; n != 0 {
			t.Errorf("%d acquires after a release", n)
		}
	})
}

// Many calls under way are no sign that a node hangs.
func TestNode_busyNode_getsAcquires(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		time.Sleep(time.Minute) // without a call
		for _, s := range servers {
			s.inject(delayed(50 * time.Millisecond))
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				for round := range 15 {
					req := other(fmt.Sprintf("%d/%d", i, round))
					if reply, err := d.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Granted {
						t.Errorf("%+v, %v", reply, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
