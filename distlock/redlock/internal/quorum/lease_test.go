package quorum_test

import (
	"errors"
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
	warm := newRequest()
	granted(t, d, warm)
	release(t, d, warm)
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

func TestRelease_followsTheAcquireUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].inject(on("acquire", fault{hold: after(50 * time.Millisecond)}))
		req := newRequest()
		granted(t, d, req)
		release(t, d, req)
		time.Sleep(10 * time.Millisecond)
		if n := len(servers[2].requests("release")); n != 1 { // of the first request
			t.Errorf("%d releases before the end of the acquire", n)
		}
		time.Sleep(time.Second)
		releases := servers[2].requests("release")
		if n := holders(t, servers); n != 0 || len(releases) != 2 || releases[1].tombstone != 0 {
			t.Errorf("%d nodes hold the name; releases %+v", n, releases)
		}
	})
}

func TestRelease_silentNode_owedWithTombstone(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		resume := servers[2].hang()
		req := newRequest()
		granted(t, d, req)
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
		if more := len(servers[2].requests("release")); more != n {
			t.Errorf("%d releases after the answer", more-n)
		}
	})
}

func TestRelease_repeated_noRequest(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		req := newRequest()
		granted(t, d, req)
		release(t, d, req)
		synctest.Wait()
		n := len(servers[0].requests("release"))
		release(t, d, req)
		if more := len(servers[0].requests("release")) - n; more != 0 {
			t.Errorf("%d requests for a repetition", more)
		}
		if reply := acquire(t, d, req); reply.Outcome != driver.Cancelled {
			t.Errorf("a released acquisition: %+v", reply)
		}
	})
}

func TestRelease_refusedByAQuorum_nothingFollows(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[0].fails(driver.ErrRights)
		servers[1].fails(driver.ErrRights)
		servers[2].inject(on("release", fault{slow: driver.ErrRights, hold: after(time.Millisecond)}))
		_, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner})
		if !errors.Is(err, driver.ErrRights) || driver.MayHaveEffect(err) {
			t.Errorf("%v", err)
		}
		for _, s := range servers {
			s.fails(nil)
			s.inject(nil)
		}
		time.Sleep(5 * time.Second)
		if !extend(t, d, req).Held || holders(t, servers) != 3 {
			t.Error("the release went on")
		}
		release(t, d, req)
	})
}

func TestExtend_lostNode_takenBack(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[1].restart()
		servers[1].raw(t, "x", time.Now().Add(time.Second).UnixMicro(), time.Millisecond) // a waiter was there
		time.Sleep(10 * time.Millisecond)
		if !extend(t, d, req).Held {
			t.Error("lost with one node")
		}
		time.Sleep(100 * time.Millisecond)
		if n := holders(t, servers); n != 3 {
			t.Errorf("%d nodes hold the name", n)
		}
		servers[0].fails(errLost)
		if !extend(t, d, req).Held {
			t.Error("the node that took it back does not count")
		}
		servers[0].fails(nil)
		release(t, d, req)
		synctest.Wait()
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name after the release", n)
		}
	})
}

func TestExtend_lost_undone(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[0].restart()
		servers[1].restart()
		if reply := extend(t, d, req); reply.Held || reply.Err != nil {
			t.Errorf("%+v, want not held", reply)
		}
		time.Sleep(time.Second)
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
		if reply := acquire(t, d, req); reply.Outcome != driver.Cancelled {
			t.Errorf("a lost acquisition: %+v", reply)
		}
		granted(t, d, newRequest())
	})
}

func TestGrant_bareQuorum_completed(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].raw(t, "x", time.Now().UnixMicro(), 20*time.Millisecond)
		req := newRequest()
		granted(t, d, req)
		time.Sleep(200 * time.Millisecond)
		if n := holders(t, servers); n != 3 {
			t.Errorf("%d nodes hold the name", n)
		}
		release(t, d, req)
		time.Sleep(200 * time.Millisecond)
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name after the release", n)
		}
	})
}

func TestRaise_S2_aboveAFailedOne(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: first.FenceEnd + time.Hour.Microseconds()}
		servers[0].fails(driver.ErrTemporary)
		servers[1].fails(driver.ErrTemporary)
		if _, err := d.Raise(t.Context(), raise); !errors.Is(err, driver.ErrTemporary) {
			t.Errorf("a raise on one node: %v", err)
		}
		synctest.Wait() // the third node has answered
		shown := servers[2].state(t, name).Fence
		servers[0].fails(nil)
		servers[1].fails(nil)
		servers[2].fails(driver.ErrTemporary)
		raise.Floor = first.FenceEnd + 1
		reply, err := d.Raise(t.Context(), raise)
		if err != nil || reply.Fence <= shown {
			t.Errorf("%+v, %v; a node has shown %d", reply, err, shown)
		}
	})
}

// A node that a later re-take has raised does not show that a quorum has the token of the raise.
func TestRaise_S2_otherTokenOnTwoNodes(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
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
	})
}

func TestExtend_S1_youngNodes_doNotHold(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := connect(servers, time.Hour)
		defer d.Close()
		for _, s := range servers {
			s.since = time.Now().Add(-2 * time.Hour)
		}
		req := newRequest()
		granted(t, d, req)
		synctest.Wait()
		for _, s := range servers[:2] {
			s.mu.Lock()
			s.since = time.Now() // with its locks
			s.mu.Unlock()
		}
		if reply := extend(t, d, req); reply.Held || reply.Err == nil {
			t.Errorf("%+v, want an error", reply)
		}
	})
}

// Two nodes refuse, and the answer of the third one is lost.
func TestRelease_answerLost_mayHaveEffect(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[0].fails(driver.ErrRights)
		servers[1].fails(driver.ErrRights)
		servers[2].inject(on("release", fault{hold: after(time.Millisecond), after: errLost}))
		over := driver.ReleaseRequest{Name: name, Owner: req.Owner}
		if _, err := d.Release(t.Context(), over); err == nil || !driver.MayHaveEffect(err) {
			t.Errorf("%v, want an unknown outcome", err)
		}
	})
}

func TestRaise_lost_undone(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d, req, first := holding(t, servers)
		servers[0].restart()
		servers[1].restart()
		raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: first.FenceEnd + 1}
		if reply, err := d.Raise(t.Context(), raise); err != nil || reply.Held {
			t.Errorf("%+v, %v", reply, err)
		}
		time.Sleep(time.Second)
		if n := holders(t, servers); n != 0 {
			t.Errorf("%d nodes hold the name", n)
		}
	})
}

func TestNode_hanging_getsFewAcquires(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := len(servers[2].requests("acquire"))
		defer servers[2].hang()()
		for range 500 {
			req := newRequest()
			granted(t, d, req)
			release(t, d, req)
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(servers[2].requests("acquire")) - before; n > 250 {
			t.Errorf("%d acquires in 5 s at a node that hangs", n)
		}
	})
}

func TestClose_owedRelease_halfASecond(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*server) {
		d := connect(servers, -1)
		req := newRequest()
		granted(t, d, req)
		synctest.Wait()
		resume := servers[2].hang()
		release(t, d, req)
		start := time.Now()
		if err := d.Close(); err != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("Close: %v after %s", err, time.Since(start))
		}
		resume()
		synctest.Wait()
	})
}
