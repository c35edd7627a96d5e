package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// scenarios are tests with three servers.
type scenarios map[string]func(t *testing.T, servers []*server)

func (all scenarios) run(t *testing.T) {
	for name, test := range all {
		t.Run(name, func(t *testing.T) { bubble(t, test) })
	}
}

// bubble runs a test with three servers under the clock of a bubble.
func bubble(t *testing.T, test func(t *testing.T, servers []*server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newServers(3))
		time.Sleep(time.Minute) // for the requests that are held back
	})
}

// An attempt that is undone stays so, though the late answers of the others would make a quorum.
func TestAcquire_S1_undoneAttempt_neverGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := newServers(5)
		d := ready(t, servers)
		token := time.Now().UnixMicro()
		servers[0].raw(t, "a", token, long)
		servers[2].raw(t, "b", token, long)
		servers[3].fails(driver.ErrNotDone) // the node may be away
		other := newRequest()
		other.Name.Key = "other"
		granted(t, d, other)
		synctest.Wait()
		servers[3].fails(nil)
		servers[3].inject(on("acquire", fault{hold: after(10 * time.Millisecond)}))
		servers[4].inject(on("acquire", fault{hold: after(20 * time.Millisecond)}))
		refused(t, d, newRequest(), driver.Busy)
		time.Sleep(time.Second)
		for _, s := range []*server{servers[1], servers[3], servers[4]} {
			if s.state(t, name).Held {
				t.Errorf("%s is held", s.name)
			}
		}
	})
}

// arriving delays the first acquires of a node.
func arriving(delays ...time.Duration) func(request) fault {
	next := 0
	return func(r request) fault {
		if r.op != "acquire" || next >= len(delays) {
			return fault{}
		}
		d := delays[next]
		if next++; d == 0 {
			return fault{}
		}
		return fault{hold: after(d)}
	}
}

// other is a request for another name.
func other(key string) driver.AcquireRequest {
	req := newRequest()
	req.Name.Key = key
	return req
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

func TestAcquire(t *testing.T) { acquiring.run(t) }

var acquiring = scenarios{
	"Acquire_S1_quorumExcludesOthers": func(t *testing.T, servers []*server) {
		d, e := newDriver(t, servers), newDriver(t, servers)
		req := newRequest()
		servers[0].fails(driver.ErrNotDone)
		first := granted(t, d, req)
		servers[0].fails(nil)
		servers[1].fails(driver.ErrNotDone)
		other := acquire(t, e, newRequest())
		if other.Outcome != driver.Busy {
			t.Errorf("another owner on the other quorum: %+v", other)
		}
		servers[1].fails(nil)
		release(t, d, req)
		synctest.Wait() // for the undo of the other owner
		if next := granted(t, e, newRequest()); next.Fence <= first.FenceEnd {
			t.Errorf("the token %d after a block that ends at %d", next.Fence, first.FenceEnd)
		}
	},
	// The first grant of a driver needs two proposals, because it does not know the clock.
	"Acquire_oneProposal": func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		for range 5 { // within one block
			turn(t, d)
			synctest.Wait()
		}
		proposals := servers[0].requests("acquire") // the first may come late
		slices.SortFunc(proposals, func(a, b request) int { return cmp.Compare(a.fence, b.fence) })
		if len(proposals) != 6 || proposals[0].fence != 1 || proposals[1].fence < time.Now().UnixMicro() {
			t.Errorf("%+v, want 1, and then 5 from the clock on", proposals)
		}
		// The block of a grant ends before the clock of the next one.
		e := ready(t, servers)
		before := servers[0].count("acquire")
		for _, of := range []driver.Driver{d, e, d, e} {
			turn(t, of)
			time.Sleep(time.Millisecond)
		}
		if n := servers[0].count("acquire") - before; n != 4 {
			t.Errorf("%d proposals for 4 grants of two drivers", n)
		}
	},
	"Acquire_S2_higherToken_toAllNodes": func(t *testing.T, servers []*server) {
		d, e := ready(t, servers), newDriver(t, servers)
		ahead := time.Now().Add(time.Minute).UnixMicro()
		servers[2].raw(t, "x", ahead, time.Millisecond)
		time.Sleep(time.Second)
		servers[1].fails(driver.ErrNotDone)
		req := newRequest()
		reply := granted(t, d, req)
		for _, s := range []*server{servers[0], servers[2]} {
			if state := s.state(t, name); state.Fence != reply.Fence || state.Fence <= ahead {
				t.Errorf("%s has %d, the grant is %d", s.name, state.Fence, reply.Fence)
			}
		}
		if busy := acquire(t, e, newRequest()); busy.State.Fence != reply.Fence {
			t.Errorf("shown %d, granted %d", busy.State.Fence, reply.Fence)
		}
	},
	"Acquire_callerLeaves_undone": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		injectAll(servers, delayed(50*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := d.Acquire(ctx, newRequest())
		if !errors.Is(err, context.DeadlineExceeded) || !driver.MayHaveEffect(err) || time.Since(start) > 20*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		time.Sleep(300 * time.Millisecond)
		wantHolders(t, servers, 0)
		for _, s := range servers {
			for _, r := range s.requests("release") {
				if r.tombstone != 0 {
					t.Error("a tombstone, though the answer has come")
				}
			}
		}
	},
	"Acquire_failed_undoneAndNotDone": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].fails(driver.ErrNotDone)
		servers[2].fails(driver.ErrTemporary)
		_, err := d.Acquire(t.Context(), newRequest())
		if driver.MayHaveEffect(err) || !errors.Is(err, driver.ErrTemporary) || errors.Is(err, driver.ErrRefused) {
			t.Errorf("%v", err)
		}
		for _, part := range []string{"2 of 3", "node1:7000: granted", "node2:7000: the request was not", "node3:7000: the service"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v, want %q in it", err, part)
			}
		}
		synctest.Wait()
		wantHolders(t, servers, 0)

		servers[1].fails(driver.ErrForeign)
		servers[2].fails(driver.ErrNotDone)
		if _, err := d.Acquire(t.Context(), newRequest()); errors.Is(err, driver.ErrForeign) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("%v, want ErrNotDone alone", err)
		}
	},
	"Acquire_lostAnswers_unknownAndTombstones": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		injectAll(servers[:2], func(r request) fault {
			if r.op == "acquire" {
				return fault{after: errLost}
			}
			return fault{before: errLost}
		})
		if _, err := d.Acquire(t.Context(), newRequest()); !driver.MayHaveEffect(err) {
			t.Errorf("%v, though two nodes hold the name", err)
		}
		injectAll(servers[:2], nil)
		time.Sleep(2 * time.Second) // the undo is owed
		wantHolders(t, servers, 0)
		released := servers[0].requests("release")
		last := released[len(released)-1]
		if last.tombstone != 2*time.Minute || !last.quiet {
			t.Errorf("%+v, want a quiet release with a tombstone", last)
		}
	},
	"Acquire_busy_showsHolder": func(t *testing.T, servers []*server) {
		d, e := newDriver(t, servers), newDriver(t, servers)
		first := granted(t, d, newRequest())
		synctest.Wait()
		servers[1].fails(driver.ErrTemporary)
		reply := acquire(t, e, newRequest())
		if reply.Outcome != driver.Busy || reply.State.Holder != "test" || reply.State.Fence != first.Fence {
			t.Errorf("%+v", reply)
		}
	},
	"Acquire_splitVote_lowestNodeWins": func(t *testing.T, servers []*server) {
		d, e := newDriver(t, servers), connect([]*server{servers[2], servers[1], servers[0]}, -1)
		defer e.Close()
		for _, of := range []driver.Driver{d, e} {
			turn(t, of)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		servers[2].fails(driver.ErrNotDone)
		// The first request reaches the first node at once, and the second node too late.
		servers[0].inject(arriving(0, 3*time.Millisecond))
		servers[1].inject(arriving(3*time.Millisecond, time.Millisecond))
		second := make(chan driver.AcquireReply)
		go func() {
			time.Sleep(time.Millisecond)
			second <- acquire(t, e, newRequest())
		}()
		first := acquire(t, d, newRequest())
		if loser := <-second; first.Outcome != driver.Granted || loser.Outcome != driver.Busy {
			t.Errorf("%+v and %+v, want a grant for the owner of the lowest node", first, loser)
		}
	},
	"Inspect_timelyNodes_count": func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		token := time.Now().UnixMicro()
		for i, s := range servers {
			s.raw(t, "x", token, time.Duration(i+1)*10*time.Second)
		}
		servers[2].inject(on("inspect", fault{hold: after(60 * time.Millisecond)}))
		if state, err := d.Inspect(t.Context(), name); err != nil || state.TTL < 15*time.Second {
			t.Errorf("%+v, %v; want the time for which two nodes hold the name", state, err)
		}
	},
	"Inspect_hungNode_awaitedOnce": func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		defer servers[2].hang()()
		for _, most := range []time.Duration{100 * time.Millisecond, 0} {
			start := time.Now()
			if _, err := d.Inspect(t.Context(), name); err != nil || time.Since(start) > most {
				t.Errorf("%v after %s, want %s", err, time.Since(start), most)
			}
			time.Sleep(time.Millisecond) // then the node is silent
		}
	},
	// The third node answers later than 100 ms after the others, and in less than three times their
	// time.
	"Acquire_distantNode_awaitedInContention": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[0].raw(t, "x", time.Now().UnixMicro(), long)
		for i, delay := range []time.Duration{100, 100, 250} {
			servers[i].inject(on("acquire", fault{hold: after(delay * time.Millisecond)}))
		}
		granted(t, d, newRequest())
	},
	// The first question waits for the node that hangs, and the further ones do not.
	"Acquire_L_splitVote_asksAgainSoon": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].raw(t, "x", time.Now().UnixMicro(), 130*time.Millisecond)
		defer servers[2].hang()()
		start := time.Now()
		granted(t, d, newRequest())
		if took := time.Since(start); took > 170*time.Millisecond {
			t.Errorf("the grant took %s", took)
		}
	},
	// A token of a longer race would be behind the clock.
	"Acquire_splitVote_endsAtHalfOfTheTTL": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].raw(t, "x", time.Now().UnixMicro(), 22*time.Millisecond)
		servers[2].fails(driver.ErrNotDone)
		req := newRequest()
		req.TTL = 30 * time.Millisecond
		refused(t, d, req, driver.Busy)
	},
	"Acquire_allNodesHang_endsInTime": func(t *testing.T, servers []*server) {
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
	},
	"Acquire_S1_releasedWhileUnderWay_notGranted": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		injectAll(servers, on("acquire", fault{hold: after(10 * time.Millisecond)}))
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
		wantHolders(t, servers, 0)
	},
	// The attempt has the lowest node of a split vote, and asks the others again.
	"Acquire_S1_noRequestFollowsARelease": func(t *testing.T, servers []*server) {
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
		before := servers[1].count("acquire")
		<-done
		if n := servers[1].count("acquire") - before; n != 0 {
			t.Errorf("%d acquires after a release", n)
		}
	},
	// Many calls under way are no sign that a node hangs.
	"Node_busyNode_getsAcquires": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		time.Sleep(time.Minute) // without a call
		injectAll(servers, delayed(50*time.Millisecond))
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
	},
}
