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
	if grant.FenceEnd > grant.Fence+driver.FenceBlock {
		t.Errorf("the block %d…%d, want at most %d tokens beyond the clock", grant.Fence, grant.FenceEnd, driver.FenceBlock)
	}
}

func testFenceBlocks(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	const grants = 500
	const ahead = driver.FenceBlock + 256*grants // a block of at most 256 may be counted from the token
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
		if got := grant.FenceEnd - base - time.Since(start).Microseconds(); got > ahead+tick.Microseconds() {
			t.Fatalf("the block ends %d µs ahead of the clock, want %d at most", got, ahead)
		}
	}
}

func testFenceFloor(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	floor := time.Now().Add(time.Hour).UnixMicro()
	s.granted(req)
	raised := s.raised(req, floor)
	if raised.Fence != floor {
		t.Errorf("fence %d, want the floor %d", raised.Fence, floor)
	}
	s.release(req, true)
	if next := s.granted(s.request()); next.Fence <= raised.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", next.Fence, raised.FenceEnd)
	}
}

// testFarFloor asks for tokens that only a damaged mark can ask for.
func testFarFloor(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	year := time.Now().Add(driver.FloorAhead)
	floors := []int64{year.Add(time.Hour).UnixMicro(), driver.MaxFence - driver.FenceBlock, driver.MaxFence + 1}
	held := s.request()
	first := s.granted(held)
	for _, floor := range floors {
		reply, err := s.Raise(context.Background(), driver.RaiseRequest{Name: held.Name, Owner: held.Owner, Floor: floor})
		if !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
			t.Errorf("a raise to %d was answered with %+v, %v; want ErrFloor", floor, reply, err)
		}
	}
	if state := s.state(); state.Fence != first.Fence || state.TTL > long {
		t.Errorf("a refused raise left the token %d and a TTL of %s, want %d and %s",
			state.Fence, state.TTL, first.Fence, long)
	}
	near := year.Add(-time.Hour).UnixMicro()
	if raised := s.raised(held, near); raised.Fence != near {
		t.Errorf("fence %d, want %d, which is less than a year ahead", raised.Fence, near)
	}
}

func testRaise(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder, other := s.request(), s.request()
	holder.Holder, holder.Metadata = "the holder", map[string]string{"traceparent": "x"}
	first := s.granted(holder)
	if low := s.raised(holder, first.Fence); low.Fence != first.Fence || low.FenceEnd != first.FenceEnd {
		t.Errorf("a raise to the present token answered %+v, want %+v", low, first)
	}
	floor := first.FenceEnd + time.Hour.Microseconds()
	s.notRaised(other, floor)
	second := s.raised(holder, floor)
	state := s.state()
	if state.Fence != second.Fence || state.Holder != holder.Holder || state.Metadata["traceparent"] != "x" {
		t.Errorf("the service shows %+v", state)
	}
	if again := s.raised(holder, floor); again != second {
		t.Errorf("a copy of the raise is answered %+v, want %+v", again, second)
	}
	if again := s.granted(holder); again.Fence != second.Fence || again.FenceEnd != second.FenceEnd {
		t.Errorf("a copy of the acquire is answered %+v, want %+v", again, second)
	}
	if busy := s.refused(other, driver.Busy); busy.State.Fence != second.Fence {
		t.Errorf("after a raise to %d, a waiter is shown the token %d", second.Fence, busy.State.Fence)
	}
	s.release(holder, true)
	s.release(holder, true)
	if next := s.granted(other); next.Fence <= second.FenceEnd {
		t.Errorf("the next fence is %d, after a block up to %d", next.Fence, second.FenceEnd)
	}
	s.notRaised(holder, floor)
}

func testRaiseGrantsNothing(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	s.notRaised(req, 1)
	if s.state().Held {
		t.Error("a raise took a name that was free")
	}
	s.granted(s.request())
	s.notRaised(req, time.Now().Add(time.Hour).UnixMicro())
}

// A raise that prolonged a grant would outlast the process that sent it.
func testRaiseKeepsTTL(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	var (
		req            driver.AcquireRequest
		sent, answered time.Time
	)
	for inTime := false; !inTime; { // or the grant may have ended with good reason
		s.awaitFree()
		req = s.expiring()
		sent = time.Now()
		floor := s.granted(req).FenceEnd + time.Hour.Microseconds()
		raised := s.raise(req, floor)
		answered = time.Now()
		if inTime = answered.Sub(sent) < short; inTime && (!raised.Held || raised.Fence < floor) {
			t.Fatalf("Raise: %+v, want a block from %d on", raised, floor)
		}
	}
	if left := s.state().TTL; left > short {
		t.Errorf("a raise left %s of a TTL of %s", left, short)
	}
	s.awaitFree()
	if after := time.Since(sent); after < short-tick || time.Since(answered) > 10*short {
		t.Errorf("the grant ended after %s, want its TTL of %s", after, short)
	}
	s.notRaised(req, 1)
}
