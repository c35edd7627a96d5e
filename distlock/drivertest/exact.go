package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// exactTests are those of Capabilities.Exact.
var exactTests = map[string]func(*testing.T, New){
	"S2_anExactGrantHasTheStatedTokens": testExactTokens,
	"S2_anExactGrantIsAboveTheLast":     testExactAbove,
	"S2_theLastTokenIsNeverLowered":     testExactLast,
	"S2_anExactGrantIsNearTheClock":     testExactClock,
	"S1_anExactGrantExcludesOthers":     testExactExcludes,
	"S1_anExactGrantRisesForItsOwner":   testExactRises,
	"S2_aBlockIsGrantedOnce":            testExactOnce,
	"S1_aCancelledExactOwnerIsRefused":  testExactCancelled,
	"S2_anExactRaiseHasTheStatedTokens": testExactRaise,
	"L_anExactRequestDoesNotOvertake":   testExactQueue,
}

// exactly is a request for a block of 256 tokens from fence on.
func exactly(req driver.AcquireRequest, fence int64) driver.AcquireRequest {
	req.Fence, req.FenceEnd = fence, fence+255
	return req
}

// propose sends an exact request, and checks the outcome and what every reply carries.
func (s *subject) propose(req driver.AcquireRequest, want driver.Outcome, last int64) driver.AcquireReply {
	s.tb.Helper()
	reply := s.acquire(req)
	if reply.Outcome != want {
		s.tb.Fatalf("an exact Acquire: outcome %d, want %d", reply.Outcome, want)
	}
	if want == driver.Granted && (reply.Fence != req.Fence || reply.FenceEnd != req.FenceEnd) {
		s.tb.Errorf("granted %d…%d, want %d…%d", reply.Fence, reply.FenceEnd, req.Fence, req.FenceEnd)
	}
	if reply.Last != last {
		s.tb.Errorf("the last token is %d, want %d", reply.Last, last)
	}
	const near = int64(time.Minute / time.Microsecond) // the service may have a clock of its own
	if now := time.Now().UnixMicro(); reply.Clock < now-near || reply.Clock > now+near {
		s.tb.Errorf("the clock is %d, %d µs ahead", reply.Clock, reply.Clock-now)
	}
	return reply
}

// clock is the backend's clock, as a refused request shows it.
func (s *subject) clock() int64 {
	s.tb.Helper()
	s = newSubject(s.tb, s.Driver)
	return s.propose(exactly(s.request(), 1), driver.TooLow, 0).Clock
}

func testExactTokens(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := exactly(s.request(), s.clock())
	s.propose(req, driver.Granted, req.FenceEnd)
	if st := s.state(); !st.Held || st.Fence != req.Fence || st.TTL <= long/2 {
		t.Errorf("the service shows %+v, want the token %d", st, req.Fence)
	}
	s.propose(req, driver.Granted, req.FenceEnd) // a copy
	s.release(req, true)
	if next := s.granted(s.request()); next.Fence <= req.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", next.Fence, req.FenceEnd)
	}
}

func testExactAbove(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	end := s.granted(req).FenceEnd
	s.release(req, true)
	for _, low := range []int64{1, end - 1, end} {
		s.propose(exactly(s.request(), low), driver.TooLow, end)
	}
	if s.state().Held {
		t.Error("a request that was too low has taken the name")
	}
	next := exactly(s.request(), end+1)
	s.propose(next, driver.Granted, end+256)
}

func testExactLast(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	first := exactly(s.request(), s.clock()+time.Hour.Microseconds())
	s.propose(first, driver.Granted, first.FenceEnd)
	s.propose(exactly(s.request(), s.clock()), driver.Busy, first.FenceEnd)
	s.release(first, true)
	s.propose(exactly(s.request(), s.clock()), driver.TooLow, first.FenceEnd)
	if next := s.granted(s.request()); next.Fence <= first.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", next.Fence, first.FenceEnd)
	}
}

// A backend keeps the last token of a name for a time, and grants no token from before that time.
func testExactClock(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.propose(exactly(s.request(), s.clock()-(driver.FenceKeep+time.Hour).Microseconds()), driver.TooLow, 0)
	far := exactly(s.request(), s.clock()+(driver.FloorAhead+time.Hour).Microseconds())
	if reply, err := s.Acquire(context.Background(), far); !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
		t.Errorf("a token more than a year ahead: %+v, %v; want ErrFloor", reply, err)
	}
	if s.state().Held {
		t.Error("a refused request has taken the name")
	}
	late := exactly(s.request(), s.clock()-time.Second.Microseconds()) // as after a slow network
	s.propose(late, driver.Granted, late.FenceEnd)
}

func testExactExcludes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := exactly(s.request(), s.clock())
	req.Holder = "first"
	s.propose(req, driver.Granted, req.FenceEnd)
	reply := s.propose(exactly(s.request(), req.FenceEnd+1), driver.Busy, req.FenceEnd)
	if st := reply.State; st.Holder != "first" || st.Owner != req.Owner || st.Fence != req.Fence || reply.Fence != 0 {
		t.Errorf("a busy reply shows %+v, want the holder", reply)
	}
	s.refused(s.request(), driver.Busy)
}

func testExactRises(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := exactly(s.request(), s.clock())
	req.TTL = long / 2
	s.propose(req, driver.Granted, req.FenceEnd)
	s.propose(exactly(req, req.Fence+1), driver.TooLow, req.FenceEnd) // inside its block
	higher := exactly(req, req.FenceEnd+1)
	higher.TTL = long
	s.propose(higher, driver.Granted, higher.FenceEnd)
	if st := s.state(); st.Fence != higher.Fence || st.TTL <= long/2 {
		t.Errorf("the service shows %+v, want the token %d and a TTL of %s", st, higher.Fence, long)
	}
	s.propose(req, driver.TooLow, higher.FenceEnd) // a copy that comes late
	s.release(req, true)
}

func testExactRaise(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := exactly(s.request(), s.clock())
	s.propose(req, driver.Granted, req.FenceEnd)
	raise := driver.RaiseRequest{Name: s.name, Owner: req.Owner}
	next := req.FenceEnd + 1
	for _, c := range []struct{ floor, want int64 }{
		{req.Fence, req.Fence}, {req.FenceEnd, req.Fence}, // not above the block: the grant keeps its tokens
		{next + 7, next + 7}, {next + 7, next + 7}, {next, next + 7},
	} {
		raise.Floor, raise.FenceEnd = c.floor, c.floor+255
		reply, err := s.Raise(context.Background(), raise)
		if want := (driver.RaiseReply{Held: true, Fence: c.want, FenceEnd: c.want + 255}); err != nil || reply != want {
			t.Errorf("a raise to exactly %d: %+v, %v; want %+v", c.floor, reply, err, want)
		}
	}
	s.release(req, true)
	s.propose(exactly(s.request(), next+7+255), driver.TooLow, next+7+255)
}

// A node that lost a grant by its TTL grants the name to its owner again, under a higher token.
func testExactOnce(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := exactly(s.request(), s.clock())
	req.TTL = short
	s.propose(req, driver.Granted, req.FenceEnd)
	s.awaitFree()
	s.propose(req, driver.TooLow, req.FenceEnd)
	higher := exactly(req, req.FenceEnd+1)
	s.propose(higher, driver.Granted, higher.FenceEnd)
	s.release(higher, true)
}

func testExactCancelled(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	never := exactly(s.request(), s.clock())
	s.releaseWithTombstone(never, long, false)
	s.propose(never, driver.Cancelled, 0)
	held := exactly(s.request(), s.clock())
	s.propose(held, driver.Granted, held.FenceEnd)
	s.release(held, true)
	s.propose(held, driver.Cancelled, held.FenceEnd)
	s.propose(exactly(held, held.FenceEnd+1), driver.Cancelled, held.FenceEnd)
}

func testExactQueue(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	if !s.Capabilities().Queues {
		return
	}
	holder := s.request()
	s.granted(holder)
	first := s.queued()
	s.extend(holder, short, true, true)
	s.awaitFree()
	reply := s.acquire(exactly(s.request(), s.clock()+time.Hour.Microseconds()))
	wake := first.served()
	if reply.Outcome != driver.Busy || reply.Last != wake.Grant.FenceEnd || reply.Ticket != 0 {
		t.Errorf("an exact request before a waiter: %+v, the waiter has %+v", reply, wake.Grant)
	}
}
