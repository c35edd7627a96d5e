package quorum_test

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
)

// ready makes a driver that knows the clocks of its nodes.
func ready(t *testing.T, servers []*server) driver.Driver {
	t.Helper()
	d := newDriver(t, servers)
	turn(t, d)
	synctest.Wait()
	time.Sleep(time.Second)
	return d
}

// holding makes a driver whose owner holds the name on all nodes.
func holding(t *testing.T, servers []*server) (driver.Driver, driver.AcquireRequest, driver.AcquireReply) {
	t.Helper()
	d, req := ready(t, servers), newRequest()
	reply := granted(t, d, req)
	synctest.Wait()
	return d, req, reply
}

func TestExtend_lost_undone(t *testing.T) {
	for call, holds := range map[string]func(*testing.T, driver.Driver, driver.AcquireRequest, int64) (bool, error){
		"Extend": func(t *testing.T, d driver.Driver, req driver.AcquireRequest, _ int64) (bool, error) {
			reply := extend(t, d, req)
			return reply.Held, reply.Err
		},
		"Raise": func(t *testing.T, d driver.Driver, req driver.AcquireRequest, floor int64) (bool, error) {
			reply, err := d.Raise(t.Context(), driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: floor})
			return reply.Held, err
		},
	} {
		bubble(t, func(t *testing.T, servers []*server) {
			d, req, first := holding(t, servers)
			lose(servers[:2])
			if held, err := holds(t, d, req, first.FenceEnd+1); held || err != nil {
				t.Errorf("%s: %t, %v; want not held", call, held, err)
			}
			time.Sleep(time.Second)
			wantHolders(t, servers, 0)
			refused(t, d, req, driver.Cancelled)
			granted(t, d, newRequest())
		})
	}
}

// The attempt of a waiter has the third node: for less time than the pause after the grant, and for more.
func TestGrant_bareQuorum_completed(t *testing.T) {
	for _, busy := range []time.Duration{20 * time.Millisecond, 55 * time.Millisecond} {
		bubble(t, func(t *testing.T, servers []*server) {
			d := ready(t, servers)
			servers[2].raw(t, "x", time.Now().UnixMicro(), busy)
			req := taken(t, d)
			time.Sleep(500 * time.Millisecond)
			wantHolders(t, servers, 3)
			release(t, d, req)
			time.Sleep(200 * time.Millisecond)
			wantHolders(t, servers, 0)
		})
	}
}

// How often the third node is asked that does not grant the name.
func TestGrant_bareQuorum_asked(t *testing.T) {
	for what, c := range map[string]struct {
		prepare func(*testing.T, *server)
		want    int
	}{
		"another owner has it": {func(t *testing.T, s *server) { s.raw(t, "x", time.Now().UnixMicro(), long) }, 1 + 10},
		"an orphan has it": {func(t *testing.T, s *server) {
			s.raw(t, "x", time.Now().UnixMicro(), long)
			time.Sleep(time.Second)
		}, 1 + 1},
		"its clock is a day ahead": {func(_ *testing.T, s *server) { s.ahead = 25 * time.Hour }, 1 + 1},
	} {
		bubble(t, func(t *testing.T, servers []*server) {
			d := ready(t, servers)
			before := servers[2].count("acquire")
			c.prepare(t, servers[2])
			granted(t, d, newRequest())
			time.Sleep(time.Second)
			if n := servers[2].count("acquire") - before; n != c.want {
				t.Errorf("%s: %d acquires, want %d", what, n, c.want)
			}
		})
	}
}

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

func TestLease(t *testing.T) { leases.run(t) }

var leases = scenarios{
	"Release_followsTheAcquireUnderWay": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].inject(on("acquire", fault{hold: after(50 * time.Millisecond)}))
		req := taken(t, d)
		release(t, d, req)
		time.Sleep(10 * time.Millisecond)
		if n := servers[2].count("release"); n != 1 { // of the first request
			t.Errorf("%d releases before the end of the acquire", n)
		}
		time.Sleep(time.Second)
		releases := servers[2].requests("release")
		if n := holders(t, servers); n != 0 || len(releases) != 2 || releases[1].tombstone != 0 {
			t.Errorf("%d nodes hold the name; releases %+v", n, releases)
		}
	},
	"Release_silentNode_owedWithTombstone": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		resume := servers[2].hang()
		req := taken(t, d)
		start := time.Now()
		release(t, d, req)
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("a release took %s beside a node that hangs", took)
		}
		time.Sleep(10 * time.Second)
		resume()
		time.Sleep(10 * time.Second)
		releases := servers[2].requests("release")
		if last := releases[len(releases)-1]; last.tombstone != 2*time.Minute || holders(t, servers) != 0 {
			t.Errorf("the last release %+v, %d nodes hold the name", last, holders(t, servers))
		}
		n := len(releases)
		time.Sleep(time.Minute)
		if more := servers[2].count("release"); more != n {
			t.Errorf("%d releases after the answer", more-n)
		}
	},
	"Release_repeated_noRequest": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		req := taken(t, d)
		release(t, d, req)
		synctest.Wait()
		n := servers[0].count("release")
		release(t, d, req)
		if more := servers[0].count("release") - n; more != 0 {
			t.Errorf("%d requests for a repetition", more)
		}
		refused(t, d, req, driver.Cancelled)
	},
	"Release_refusedByAQuorum_nothingFollows": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		fail(servers[:2], driver.ErrRights)
		servers[2].inject(on("release", fault{slow: driver.ErrRights, hold: after(time.Millisecond)}))
		_, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner})
		if !errors.Is(err, driver.ErrRights) || driver.MayHaveEffect(err) {
			t.Errorf("%v", err)
		}
		fail(servers, nil)
		injectAll(servers, nil)
		time.Sleep(5 * time.Second)
		if !extend(t, d, req).Held || holders(t, servers) != 3 {
			t.Error("the release went on")
		}
		release(t, d, req)
	},
	"Extend_lostNode_takenBack": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[1].restart()
		servers[1].raw(t, "x", time.Now().Add(time.Second).UnixMicro(), time.Millisecond) // a waiter was there
		time.Sleep(10 * time.Millisecond)
		extended(t, d, req)
		time.Sleep(100 * time.Millisecond)
		wantHolders(t, servers, 3)
		servers[0].fails(errLost)
		extended(t, d, req)
		servers[0].fails(nil)
		release(t, d, req)
		synctest.Wait()
		wantHolders(t, servers, 0)
	},
	"Raise_S2_aboveAFailedOne": func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: first.FenceEnd + time.Hour.Microseconds()}
		fail(servers[:2], driver.ErrTemporary)
		if _, err := d.Raise(t.Context(), raise); !errors.Is(err, driver.ErrTemporary) {
			t.Errorf("a raise on one node: %v", err)
		}
		synctest.Wait() // the third node has answered
		shown := servers[2].state(t, name).Fence
		fail(servers[:2], nil)
		servers[2].fails(driver.ErrTemporary)
		raise.Floor = first.FenceEnd + 1
		reply, err := d.Raise(t.Context(), raise)
		if err != nil || reply.Fence <= shown {
			t.Errorf("%+v, %v; a node has shown %d", reply, err, shown)
		}
	},
	// A node that a later re-take has raised does not show that a quorum has the token of the raise.
	"Raise_S2_otherTokenOnTwoNodes": func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		for _, s := range servers[:2] {
			ahead := driver.RaiseRequest{Name: name, Owner: s.state(t, name).Owner, Floor: first.FenceEnd + time.Hour.Microseconds()}
			if reply, err := s.locks.Raise(t.Context(), ahead); err != nil || reply.Outcome != quorum.Held {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: first.FenceEnd + 1}
		if reply, err := d.Raise(t.Context(), raise); err == nil {
			t.Errorf("%+v, though one node has the token", reply)
		}
		raise.Floor = first.Fence
		if reply, err := d.Raise(t.Context(), raise); err != nil || reply != (driver.RaiseReply{Held: true, Fence: first.Fence, FenceEnd: first.FenceEnd}) {
			t.Errorf("%+v, %v; want the token of the grant", reply, err)
		}
	},
	"Extend_S1_youngNodes_doNotHold": func(t *testing.T, servers []*server) {
		d := connect(servers, time.Hour)
		defer d.Close()
		for _, s := range servers {
			s.since = time.Now().Add(-2 * time.Hour)
		}
		req := taken(t, d)
		synctest.Wait()
		for _, s := range servers[:2] {
			s.mu.Lock()
			s.since = time.Now() // with its locks
			s.mu.Unlock()
		}
		if reply := extend(t, d, req); reply.Held || reply.Err == nil {
			t.Errorf("%+v, want an error", reply)
		}
	},
	// Two nodes refuse, and the answer of the third one is lost.
	"Release_answerLost_mayHaveEffect": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		fail(servers[:2], driver.ErrRights)
		servers[2].inject(on("release", fault{hold: after(time.Millisecond), after: errLost}))
		over := driver.ReleaseRequest{Name: name, Owner: req.Owner}
		if _, err := d.Release(t.Context(), over); err == nil || !driver.MayHaveEffect(err) {
			t.Errorf("%v, want an unknown outcome", err)
		}
	},
	"Node_hanging_getsFewAcquires": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := servers[2].count("acquire")
		defer servers[2].hang()()
		for range 500 {
			turn(t, d)
			time.Sleep(10 * time.Millisecond)
		}
		if n := servers[2].count("acquire") - before; n > 250 {
			t.Errorf("%d acquires in 5 s at a node that hangs", n)
		}
	},
	"Close_owedRelease_halfASecond": func(t *testing.T, servers []*server) {
		d := connect(servers, -1)
		req := taken(t, d)
		synctest.Wait()
		resume := servers[2].hang()
		release(t, d, req)
		start := time.Now()
		if err := d.Close(); err != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("Close: %v after %s", err, time.Since(start))
		}
		resume()
		synctest.Wait()
	},
	// The node says "not held" before the others do.
	"Extend_lost_nothingTakenBack": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		lose(servers[:2])
		servers[1].inject(on("extend", fault{hold: after(10 * time.Millisecond)}))
		servers[2].inject(on("extend", fault{hold: after(20 * time.Millisecond)}))
		before := servers[0].count("acquire")
		if reply := extend(t, d, req); reply.Held || reply.Err != nil {
			t.Errorf("%+v, want not held", reply)
		}
		time.Sleep(time.Second)
		if n := servers[0].count("acquire") - before; n != 0 {
			t.Errorf("%d acquires for a grant that is lost", n)
		}
	},
	// Two nodes decide before the third one says "not held". It is asked once at a time.
	"Extend_lateNotHeld_takenBack": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[1].restart()
		servers[1].inject(func(r request) fault {
			if r.op == "acquire" {
				return fault{hold: after(50 * time.Millisecond)}
			}
			return fault{hold: after(10 * time.Millisecond)}
		})
		before := servers[1].count("acquire")
		for range 2 {
			extended(t, d, req)
		}
		time.Sleep(200 * time.Millisecond)
		if n := servers[1].count("acquire") - before; holders(t, servers) != 3 || n != 1 {
			t.Errorf("%d nodes hold the name after %d acquires", holders(t, servers), n)
		}
	},
	// The third node is years ahead: a raise of the grant would follow it.
	"Grant_S2_nodeFarAhead_notTakenBack": func(t *testing.T, servers []*server) {
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
	},
	"Raise_floorTooHigh_noEffect": func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: driver.MaxFence - 1000}
		if _, err := d.Raise(t.Context(), raise); !errors.Is(err, driver.ErrFloor) {
			t.Errorf("%v, want ErrFloor", err)
		}
		raise.Floor = first.FenceEnd + 1
		if reply, err := d.Raise(t.Context(), raise); err != nil || reply.Fence > time.Now().Add(time.Second).UnixMicro() {
			t.Errorf("%+v, %v", reply, err)
		}
	},
	"Extend_S1_unknownOwner_takesNothing": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		if reply := extend(t, d, newRequest()); reply.Held || reply.Err != nil {
			t.Errorf("%+v, want not held", reply)
		}
		time.Sleep(time.Second)
		wantHolders(t, servers, 0)
	},
	"Retake_S2_showsTheGrant": func(t *testing.T, servers []*server) {
		d, waiter := ready(t, servers), ready(t, servers)
		servers[2].raw(t, "x", time.Now().UnixMicro(), 20*time.Millisecond)
		req := newRequest()
		req.Metadata = map[string]string{"traceparent": "x"}
		first := granted(t, d, req)
		time.Sleep(time.Second)
		wantHolders(t, servers, 3)
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
	},
	// A session store refuses a waiter as deleted if the shown token is below that of a later Delete. The
	// clocks of two nodes are ahead, and the process that deletes does not reach one of them.
	"Retake_S2_shownBelowALaterRaise": func(t *testing.T, servers []*server) {
		servers[1].ahead, servers[2].ahead = 10*time.Second, 10*time.Second
		d, waiter := ready(t, servers), ready(t, servers)
		servers[2].raw(t, "x", time.Now().Add(10*time.Second).UnixMicro(), 20*time.Millisecond)
		req := taken(t, d)
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
	},
	// Two Extends find that the third node has lost the grant. The answer to the second one comes during
	// a Raise, which the third node has carried out.
	"Raise_S2_noRetakeUnderWay": func(t *testing.T, servers []*server) {
		d, waiter := ready(t, servers), ready(t, servers)
		req := newRequest()
		first := granted(t, d, req)
		synctest.Wait()
		servers[2].restart()
		servers[2].inject(on("acquire", fault{hold: after(5 * time.Millisecond)}))
		for range 2 {
			extended(t, d, req)
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
	},
	// The answers to the first Raise come after those to the second one.
	"Raise_S2_twoAtOnce_theHigherStays": func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		injectAll(servers, on("raise", fault{answer: after(20 * time.Millisecond)}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			raise(t, d, req, first.FenceEnd+1)
		}()
		time.Sleep(10 * time.Millisecond)
		injectAll(servers, nil)
		higher := raise(t, d, req, first.FenceEnd+time.Hour.Microseconds())
		<-ended
		if again := granted(t, d, req); again.Fence != higher.Fence {
			t.Errorf("the grant has the token %d after a raise to %d", again.Fence, higher.Fence)
		}
	},
}
