package drivertest

import (
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func testOnlyOwnerReleases(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder, other := s.request(), s.request()
	s.granted(holder)
	s.release(other, false)
	s.releaseWithTombstone(other, long, false)
	s.refused(s.request(), driver.Busy)
	s.release(holder, true)
}

func testOnlyOwnerExtends(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.TTL = long / 2
	s.granted(holder)
	s.extend(s.request(), long, false)
	if left := s.state().TTL; left > holder.TTL {
		t.Errorf("another owner's extend prolonged the grant to %s", left)
	}
	s.extend(holder, long, true)
}

func testExtendNeverGrants(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.extend(req, long, false)
	s.granted(req)
	s.release(req, true)
	s.extend(req, long, false)
	s.granted(s.request())
}

func testAcquireIdempotent(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.TTL = long / 2
	first := s.granted(req)
	req.TTL = long
	second := s.granted(req)
	if first.Fence != second.Fence || first.FenceEnd != second.FenceEnd {
		t.Errorf("the same owner was granted %+v, then %+v", first, second)
	}
	if left := s.state().TTL; left <= long/2 {
		t.Errorf("a repeated acquire leaves %s of its TTL of %s", left, long)
	}
	req.TTL = long / 2
	s.granted(req)
	if left := s.state().TTL; left <= long/2 {
		t.Errorf("a repeated acquire shortened the grant to %s", left)
	}
}

func testExpiredRefused(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.expiring()
	s.granted(req)
	s.awaitFree()
	s.refused(req, driver.Cancelled)
	s.extend(req, long, false)
	s.release(req, false)
}

func testTombstone(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	never, held := s.request(), s.request()
	s.releaseWithTombstone(never, long, false)
	s.releaseWithTombstone(never, time.Millisecond, false) // a late copy
	pass(time.Millisecond)
	s.refused(never, driver.Cancelled)

	s.granted(held)
	s.releaseWithTombstone(held, long, true)
	for range 3 { // so that only the mark remembers held
		next := s.request()
		s.granted(next)
		s.release(next, true)
	}
	s.refused(held, driver.Cancelled)
	s.refused(never, driver.Cancelled)
	s.granted(s.request())
}

func testReleasedRefused(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.granted(req)
	s.release(req, true)
	s.refused(req, driver.Cancelled)
	if s.state().Held {
		t.Error("the name is held by an owner that was released")
	}
	next := s.expiring()
	s.granted(next)
	s.awaitFree()
	s.refused(req, driver.Cancelled)
}
