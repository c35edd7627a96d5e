package drivertest

import (
	"testing"
)

func testReleaseFrees(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.granted(req)
	s.release(req, true)
	if s.state().Held {
		t.Error("held after its release")
	}
	s.granted(s.request())
}

func testExpiryFrees(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.expiring()
	first := s.granted(req)
	next, second := s.takenOver()
	if second.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", second.Fence, first.FenceEnd)
	}
	s.extend(req, long, false)
	s.release(req, false)
	s.extend(next, long, true)
}

func testReleaseIdempotent(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.release(req, false)
	s.granted(req)
	s.release(req, true)
	s.release(req, true)
	next := s.request()
	s.granted(next)
	s.release(req, true) // a replay must not touch the next holder
	if !s.state().Held {
		t.Error("a replayed release ended the next grant")
	}
}
