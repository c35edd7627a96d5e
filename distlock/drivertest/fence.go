package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

func testFencesRise(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	last := int64(0)
	for range 200 {
		req := s.request()
		grant := s.granted(req)
		if grant.Fence <= last {
			t.Fatalf("fence %d after %d", grant.Fence, last)
		}
		last = grant.FenceEnd
		s.release(req, true)
	}
}

func testFenceClock(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	const near = int64(time.Minute / time.Microsecond) // the service may have a clock of its own
	grant := s.granted(s.request())
	if now := time.Now().UnixMicro(); grant.Fence < now-near || grant.Fence > now+near {
		t.Errorf("fence %d is not near the clock, %d µs since the epoch", grant.Fence, now)
	}
	if grant.FenceEnd != grant.Fence+driver.FenceBlock {
		t.Errorf("the block %d…%d, want %d tokens beyond the clock", grant.Fence, grant.FenceEnd, driver.FenceBlock)
	}
}

func testFenceBlocks(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	const grants = 500
	start := time.Now()
	first := s.request()
	before := s.granted(first)
	base := before.Fence
	s.release(first, true)
	for range grants {
		req := s.request()
		grant := s.granted(req)
		s.release(req, true)
		if grant.FenceEnd < grant.Fence {
			t.Fatalf("the block %d…%d is empty", grant.Fence, grant.FenceEnd)
		}
		if grant.Fence <= before.FenceEnd {
			t.Fatalf("the block from %d overlaps the one before, %d…%d", grant.Fence, before.Fence, before.FenceEnd)
		}
		before = grant
		// However fast names change hands, tokens run ahead of the clock by one block and one per grant at most.
		if ahead := grant.FenceEnd - base - time.Since(start).Microseconds(); ahead > driver.FenceBlock+grants+tick.Microseconds() {
			t.Fatalf("the block ends %d µs ahead of the clock", ahead)
		}
	}
}

func testFenceFloor(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.FenceFloor = time.Now().Add(time.Hour).UnixMicro()
	grant := s.granted(req)
	if grant.Fence != req.FenceFloor {
		t.Errorf("fence %d, want the floor %d", grant.Fence, req.FenceFloor)
	}
	s.release(req, true)
	low := s.request()
	low.FenceFloor = 1
	if next := s.granted(low); next.Fence <= grant.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", next.Fence, grant.FenceEnd)
	}
}

// testFarFloor asks for tokens that only a damaged mark can ask for, of a name that is free and of one
// that is held.
func testFarFloor(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	year := time.Now().Add(driver.FloorAhead)
	refuses := func(req driver.AcquireRequest) {
		t.Helper()
		for _, floor := range []int64{year.Add(time.Hour).UnixMicro(), driver.MaxFence - driver.FenceBlock, driver.MaxFence + 1} {
			req.FenceFloor = floor
			if reply, err := s.Acquire(context.Background(), req); !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
				t.Errorf("the floor %d was answered with %+v, %v; want ErrFloor", floor, reply, err)
			}
		}
	}
	refuses(req)
	if s.state().Held {
		t.Error("a refused acquire left a grant")
	}
	s.release(req, false)

	held := s.request()
	first := s.granted(held)
	again := held
	again.Refence, again.TTL = true, 2*long
	refuses(again)
	if state := s.state(); state.Fence != first.Fence || state.TTL > long {
		t.Errorf("a refused refence left the token %d and a TTL of %s, want %d and %s", state.Fence, state.TTL, first.Fence, long)
	}
	s.release(held, true)
	next := s.request()
	next.FenceFloor = year.Add(-time.Hour).UnixMicro()
	if grant := s.granted(next); grant.Fence != next.FenceFloor {
		t.Errorf("fence %d, want %d, which is less than a year ahead", grant.Fence, next.FenceFloor)
	}
}

func testRefence(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	original := s.request()
	first := s.granted(original)
	again := original
	again.Refence, again.FenceFloor = true, first.FenceEnd+time.Hour.Microseconds()
	second := s.granted(again)
	if second.Fence < again.FenceFloor || second.FenceEnd < second.Fence {
		t.Errorf("%+v, want a block from %d on", second, again.FenceFloor)
	}
	if state := s.state(); state.Fence != second.Fence || state.Holder != original.Holder || state.TTL < long-time.Second {
		t.Errorf("the service shows %+v", state)
	}
	for name, copied := range map[string]driver.AcquireRequest{"the refence": again, "the acquire": original} {
		if reply := s.granted(copied); reply.Fence != second.Fence || reply.FenceEnd != second.FenceEnd {
			t.Errorf("a copy of %s is answered %+v, want %+v", name, reply, second)
		}
	}
	other := s.request()
	s.refused(other, driver.Busy)
	s.release(original, true)
	s.release(original, true)
	if next := s.granted(other); next.Fence <= second.FenceEnd {
		t.Errorf("the next fence is %d, after a block up to %d", next.Fence, second.FenceEnd)
	}
	if reply := s.acquire(again); reply.Outcome == driver.Granted {
		t.Errorf("a copy that came after the release was granted the name: %+v", reply)
	}
}

func testRefenceGrantsNothing(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.Refence, req.FenceFloor = true, 1
	s.refused(req, driver.Void)
	if s.state().Held {
		t.Error("a refence took a name that was free")
	}
	s.granted(s.request())
	if reply := s.acquire(req); reply.Outcome == driver.Granted {
		t.Errorf("a refence took a name from its holder: %+v", reply)
	}
}
