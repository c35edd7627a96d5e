package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// youngs makes a driver to which restarts matter, and servers that have just started.
func youngs(t *testing.T, restartDelay time.Duration) (driver.Driver, []*server) {
	servers := newServers(3)
	d := connect(servers, restartDelay)
	t.Cleanup(func() { _ = d.Close() })
	return d, servers
}

func TestYoung_S1_grantsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, servers := youngs(t, long)
		e := connect(servers, long)
		defer e.Close()
		servers[2].fails(driver.ErrNotDone)
		taken(t, d)
		servers[2].fails(nil)
		servers[0].restart() // it has lost the grant
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if reply, err := e.Acquire(ctx, newRequest()); err == nil && reply.Outcome == driver.Granted {
			t.Errorf("two holders: %+v", reply)
		}
		time.Sleep(long)
		granted(t, e, newRequest())
	})
}

// The server restarts after it has granted, and before the driver asks how long it is up.
func TestYoung_S1_askedAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, servers := youngs(t, long)
		turn(t, d)
		synctest.Wait()
		servers[2].fails(driver.ErrNotDone)
		servers[1].inject(on("acquire", fault{hold: after(time.Millisecond)}))
		go func() {
			time.Sleep(500 * time.Microsecond)
			servers[1].mu.Lock()
			servers[1].since = time.Now()
			servers[1].mu.Unlock()
		}()
		if reply, err := d.Acquire(t.Context(), newRequest()); !errors.Is(err, driver.ErrTemporary) {
			t.Errorf("%+v, %v; want ErrTemporary", reply, err)
		}
	})
}

func TestAcquire_ttlAboveTheRestartDelay_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := youngs(t, long/2)
		if _, err := d.Acquire(t.Context(), newRequest()); !errors.Is(err, driver.ErrNotDone) || !errors.Is(err, driver.ErrRefused) {
			t.Errorf("%v", err)
		}
	})
}

func TestOwed(t *testing.T) { owed.run(t) }

var owed = scenarios{
	// A node that has not accepted the attempt is not asked. It counts as one that does not hold the name.
	"Release_nodeWithoutTheGrant_notAsked": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := servers[2].count("release")
		servers[2].fails(driver.ErrNotDone)
		for _, restarts := range []bool{false, true} {
			req := taken(t, d)
			synctest.Wait()
			if restarts {
				servers[0].restart() // it has lost the grant
			}
			reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner})
			if err != nil || reply.Released == restarts {
				t.Errorf("a node has lost the grant: %t; %+v, %v", restarts, reply, err)
			}
			synctest.Wait()
		}
		if n := servers[2].count("release") - before; n != 0 {
			t.Errorf("%d releases at a node that never got the attempt", n)
		}
	},
	"Release_unknownOwner_allNodesAreAsked": func(t *testing.T, servers []*server) {
		d := newDriver(t, servers)
		reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: newRequest().Owner, Tombstone: time.Minute})
		if err != nil || reply.Released {
			t.Errorf("%+v, %v", reply, err)
		}
		synctest.Wait()
		for _, s := range servers {
			if sent := s.requests("release"); len(sent) != 1 || sent[0].tombstone != time.Minute {
				t.Errorf("%s got %+v", s.name, sent)
			}
		}
	},
	"Release_owed_oneAtATime": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		before := servers[2].count("release")
		resume := servers[2].hang()
		for i := range 50 {
			req := other(fmt.Sprint(i))
			granted(t, d, req)
			release(t, d, req)
		}
		time.Sleep(10 * time.Second)
		if n := servers[2].count("release") - before; n > 50+10 {
			t.Errorf("%d calls for 50 releases at a node that hangs", n)
		}
		resume()
		time.Sleep(10 * time.Second)
		for i := range 50 {
			if servers[2].state(t, other(fmt.Sprint(i)).Name).Held {
				t.Errorf("%d is held", i)
			}
		}
	},
	"Release_owed_endsWithTheCopies": func(t *testing.T, servers []*server) {
		d, req, _ := holding(t, servers)
		servers[2].fails(errLost)
		release(t, d, req)
		time.Sleep(100 * time.Second)
		before := servers[2].count("release")
		time.Sleep(30 * time.Second)
		after := servers[2].count("release")
		time.Sleep(time.Minute)
		if n := servers[2].count("release"); before == after || n != after {
			t.Errorf("%d releases, then %d, then %d; want the last ones within 2 minutes", before, after, n)
		}
	},
	"Release_owed_refusalDoesNotKeepOthers": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		refused, good := other("refused"), other("good")
		granted(t, d, refused)
		granted(t, d, good)
		synctest.Wait()
		servers[2].fails(errLost)
		release(t, d, refused)
		release(t, d, good)
		servers[2].mu.Lock()
		servers[2].foreign[refused.Name] = true
		servers[2].mu.Unlock()
		servers[2].fails(nil)
		time.Sleep(5 * time.Second)
		if servers[2].state(t, good.Name).Held {
			t.Error("a release that the node refuses keeps the other")
		}
	},
	// The time of the first Releases is over. They do not keep a later one.
	"Release_owed_overdueOnesLeaveAtOnce": func(t *testing.T, servers []*server) {
		d := ready(t, servers)
		servers[2].fails(errLost)
		for i := range 100 {
			req := other(fmt.Sprint(i))
			granted(t, d, req)
			release(t, d, req)
		}
		time.Sleep(2 * time.Minute)
		turn(t, d)
		servers[2].fails(nil)
		before := servers[2].count("release")
		time.Sleep(3 * time.Second)
		if n := servers[2].count("release") - before; n > 2 {
			t.Errorf("%d releases at a node that answers again, want the last one and at most one before", n)
		}
	},
}
