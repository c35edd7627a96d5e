package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// bubble runs a test with three servers under the clock of a bubble.
func bubble(t *testing.T, test func(t *testing.T, servers []*server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newServers(3))
		time.Sleep(time.Minute) // for the requests that are held back
	})
}

func TestAcquire_S1_quorumExcludesOthers(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
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
	})
}

func TestAcquire_firstOfADriver_twoProposals(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		granted(t, newDriver(t, servers), newRequest())
		synctest.Wait()
		proposals := servers[0].requests("acquire") // the first may come late
		slices.SortFunc(proposals, func(a, b request) int { return cmp.Compare(a.fence, b.fence) })
		if len(proposals) != 2 || proposals[0].fence != 1 || proposals[1].fence < time.Now().UnixMicro() {
			t.Errorf("%+v, want 1 and then the clock", proposals)
		}
	})
}

func TestAcquire_handoff_oneProposal(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		for range 5 { // within one block
			req := newRequest()
			granted(t, d, req)
			release(t, d, req)
			synctest.Wait()
		}
		if n := len(servers[0].requests("acquire")); n != 6 {
			t.Errorf("%d proposals for 5 grants, want 6", n)
		}
	})
}

// The block of a grant ends before the clock of the next one.
func TestAcquire_otherDriverSoon_oneProposal(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, e := ready(t, servers), ready(t, servers)
		before := len(servers[0].requests("acquire"))
		for _, of := range []driver.Driver{d, e, d, e} {
			req := newRequest()
			granted(t, of, req)
			release(t, of, req)
			time.Sleep(time.Millisecond)
		}
		if n := len(servers[0].requests("acquire")) - before; n != 4 {
			t.Errorf("%d proposals for 4 grants", n)
		}
	})
}

func TestAcquire_S2_higherToken_toAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
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
	})
}

func TestAcquire_callerLeaves_undone(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		for _, s := range servers {
			s.inject(delayed(50 * time.Millisecond))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := d.Acquire(ctx, newRequest())
		if !errors.Is(err, context.DeadlineExceeded) || !driver.MayHaveEffect(err) || time.Since(start) > 20*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		time.Sleep(300 * time.Millisecond)
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
		for _, s := range servers {
			for _, r := range s.requests("release") {
				if r.tombstone != 0 {
					t.Error("a tombstone, though the answer has come")
				}
			}
		}
	})
}

func TestAcquire_failed_undoneAndNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
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
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
	})
}

func TestAcquire_failed_kindsOfTheQuorum(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[1].fails(driver.ErrForeign)
		servers[2].fails(driver.ErrNotDone)
		_, err := d.Acquire(t.Context(), newRequest())
		if errors.Is(err, driver.ErrForeign) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("%v, want ErrNotDone alone", err)
		}
	})
}

func TestAcquire_lostAnswers_unknownAndTombstones(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		for _, s := range servers[:2] {
			s.inject(func(r request) fault {
				if r.op == "acquire" {
					return fault{after: errLost}
				}
				return fault{before: errLost}
			})
		}
		if _, err := d.Acquire(t.Context(), newRequest()); !driver.MayHaveEffect(err) {
			t.Errorf("%v, though two nodes hold the name", err)
		}
		for _, s := range servers[:2] {
			s.inject(nil)
		}
		time.Sleep(2 * time.Second) // the undo is owed
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
		released := servers[0].requests("release")
		last := released[len(released)-1]
		if last.tombstone != 2*time.Minute || !last.quiet {
			t.Errorf("%+v, want a quiet release with a tombstone", last)
		}
	})
}

func TestAcquire_busy_showsHolder(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, e := newDriver(t, servers), newDriver(t, servers)
		first := granted(t, d, newRequest())
		synctest.Wait()
		servers[1].fails(driver.ErrTemporary)
		reply := acquire(t, e, newRequest())
		if reply.Outcome != driver.Busy || reply.State.Holder != "test" || reply.State.Fence != first.Fence {
			t.Errorf("%+v", reply)
		}
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
		if reply := acquire(t, d, newRequest()); reply.Outcome != driver.Busy {
			t.Errorf("%+v", reply)
		}
		time.Sleep(time.Second)
		for _, s := range []*server{servers[1], servers[3], servers[4]} {
			if s.state(t, name).Held {
				t.Errorf("%s is held", s.name)
			}
		}
	})
}

func TestAcquire_splitVote_lowestNodeWins(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, e := newDriver(t, servers), connect([]*server{servers[2], servers[1], servers[0]}, -1)
		defer e.Close()
		for _, of := range []driver.Driver{d, e} {
			warm := newRequest()
			granted(t, of, warm)
			release(t, of, warm)
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
