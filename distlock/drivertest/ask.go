package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// askTests are those of driver.Asker.
var askTests = map[string]func(*testing.T, New){
	"L_askIsForOneGrant":            testAskCond,
	"L_askEndsNoLease":              testAskKeeps,
	"L_anAskOfAnAskedGrant":         testAskAgain,
	"L_theNextGrantIsNotAsked":      testAskNext,
	"S2_anAskShowsItsToken":         testAskShown,
	"S2_anAskReservesItsToken":      testAskTokens,
	"S2_aRaiseKeepsTheAsk":          testAskRaise,
	"S2_askOfAFreeName":             testAskFree,
	"S2_askedFloorAYearAhead":       testAskFloor,
	"N_anAskIsNotifiedInEachDriver": testNotifyAsks,
}

func asker(d driver.Driver) driver.Asker {
	a, _ := driver.As[driver.Asker](d)
	return a
}

// work is the metadata of a grant for a piece of work.
func work(id string) map[string]string {
	return map[string]string{driver.WorkKey: id, "traceparent": "x"}
}

// ask asks the holder, if the grant shows fence or is for the work.
func (s *subject) ask(fence int64, work string, floor int64) driver.AskReply {
	s.tb.Helper()
	reply, err := asker(s.Driver).Ask(context.Background(),
		driver.AskRequest{Name: s.name, Fence: fence, Work: work, Floor: floor})
	if err != nil {
		s.tb.Fatalf("Ask: %v", err)
	}
	return reply
}

// asked asks the holder that shows fence. It returns the token of the ask.
func (s *subject) asked(fence int64) int64 {
	s.tb.Helper()
	reply := s.ask(fence, "", 0)
	if !reply.Asked || reply.Fence <= fence || !reply.State.Held || reply.State.Fence != fence {
		s.tb.Fatalf("Ask of the grant that shows %d: %+v", fence, reply)
	}
	return reply.Fence
}

// owns checks the token that a look shows as the owner's.
func (s *subject) owns(want int64) {
	s.tb.Helper()
	if look := s.ask(0, "", 0); look.Own != want {
		s.tb.Errorf("a look at a grant with the token %d: %+v", want, look)
	}
}

// isAsked checks what an extend tells the owner, without a longer TTL.
func (s *subject) isAsked(req driver.AcquireRequest, want bool) {
	s.tb.Helper()
	extend := driver.ExtendRequest{Name: req.Name, Owner: req.Owner, TTL: short}
	reply := s.Extend(context.Background(), []driver.ExtendRequest{extend})[0]
	if reply.Err != nil || !reply.Held || reply.Asked != want {
		s.tb.Errorf("Extend: %+v, want Held, and Asked %t", reply, want)
	}
}

func testAskCond(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.Metadata = work("mine")
	grant := s.granted(req)
	plain := newSubject(t, s.Driver) // a grant without a work
	plain.granted(plain.request())
	for _, miss := range []struct {
		*subject
		fence int64
		work  string
	}{
		{s, 0, ""}, {s, 0, "other"}, {s, 0, "min"}, {s, 0, "mine "}, {s, 0, "x"},
		{s, grant.Fence - 1, ""}, {s, grant.Fence + 1, "other"}, {s, grant.FenceEnd, ""}, {plain, 0, ""}, {plain, 0, "mine"},
	} {
		before := miss.state()
		reply := miss.ask(miss.fence, miss.work, before.Fence+time.Hour.Microseconds())
		if reply.Asked || reply.Fence != before.Fence || reply.State.Fence != before.Fence || miss.state().Fence != before.Fence {
			t.Errorf("Ask of the token %d and the work %q: %+v, of the grant %+v", miss.fence, miss.work, reply, before)
		}
	}
	s.isAsked(req, false)
	reply := s.ask(0, "mine", 0)
	if !reply.Asked || reply.Fence <= grant.FenceEnd || reply.State.Fence != grant.Fence || reply.State.Metadata[driver.WorkKey] != "mine" {
		t.Fatalf("Ask of the work: %+v, of the grant %+v", reply, grant)
	}
	s.isAsked(req, true)
	s.release(req, true)
	next := s.request()
	s.granted(next)
	s.ask(grant.Fence, "mine", 0) // late copies
	s.ask(reply.Fence, "", 0)
	s.isAsked(next, false)
}

// The owner keeps the name, its token, and its time.
func testAskKeeps(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.Holder, req.Metadata, req.TTL = "the holder", work("mine"), long/2
	grant := s.granted(req)
	time.Sleep(50 * time.Millisecond)
	before := s.state().Age
	asked := s.asked(grant.Fence)
	state := s.state()
	if !state.Held || state.Age < before || state.Holder != "the holder" || state.Metadata[driver.WorkKey] != "mine" ||
		state.Metadata["traceparent"] != "x" || state.TTL > long/2 || state.TTL < long/2-time.Minute {
		t.Errorf("an asked grant of %s is shown as %+v", long/2, state)
	}
	if again := s.granted(req); again.Fence != grant.Fence {
		t.Errorf("a repeated acquire of an asked grant: %+v, want the token %d", again, grant.Fence)
	}
	s.isAsked(req, true)
	s.extend(req, long, true)
	if left := s.state().TTL; left <= long/2 {
		t.Errorf("an extend of an asked grant left %s", left)
	}
	s.refused(s.request(), driver.Busy)
	if state := s.state(); state.Fence != asked {
		t.Errorf("the grant that was asked with %d shows %d", asked, state.Fence)
	}
	s.release(req, true)
	s.release(req, true)
	s.refused(req, driver.Cancelled)
}

func testAskAgain(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	req.Metadata = work("mine")
	grant := s.granted(req)
	first := s.asked(grant.Fence)
	for _, old := range []int64{grant.Fence, first - 1, first + 1} {
		if reply := s.ask(old, "", 0); reply.Asked || reply.Fence != first || reply.State.Fence != first {
			t.Errorf("Ask of the token %d after an ask with %d: %+v", old, first, reply)
		}
	}
	second := s.asked(first)
	third := s.ask(0, "mine", second+time.Hour.Microseconds())
	if !third.Asked || third.State.Fence != second || third.Fence != second+time.Hour.Microseconds() {
		t.Errorf("Ask of the work, with a floor an hour above %d: %+v", second, third)
	}
	s.isAsked(req, true)
	if _, ok := driver.As[driver.Breaker](s.Driver); ok {
		s.breakGrant(grant.Fence, false)
		s.breakGrant(second, false)
		s.isAsked(req, true)
		s.breakGrant(third.Fence, true)
		s.extend(req, long, false)
	}
}

func testAskNext(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	asked := s.asked(s.granted(req).Fence)
	check := func(req driver.AcquireRequest, grant driver.AcquireReply) {
		t.Helper()
		if grant.Fence <= asked || s.state().Fence != grant.Fence {
			t.Errorf("the grant after an ask with %d is %+v, and shows %d", asked, grant, s.state().Fence)
		}
		s.isAsked(req, false)
		asked = s.asked(grant.Fence)
		s.owns(grant.Fence)
	}
	if s.Capabilities().Queues {
		first, second := s.queued(), s.queued()
		s.release(req, true)
		check(first.req, first.served().Grant)
		s.release(first.req, true)
		check(second.req, second.served().Grant)
		req = second.req
	}
	s.release(req, true)
	last := s.request()
	last.TTL = brief
	check(last, s.granted(last)) // an ask lets it expire
	next, grant := s.takenOver()
	check(next, grant)
}

// Waiters see the token of the ask.
func testAskShown(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.name.Namespace = randomHex()
	asked := s.asked(s.granted(s.request()).Fence)
	waiter := s.request()
	if s.Capabilities().Queues {
		waiter.Alive, waiter.Seq = long, 1
	}
	for range 2 {
		shown := map[string]int64{
			"Inspect": s.state().Fence, "Acquire": s.refused(waiter, driver.Busy).State.Fence, "Ask": s.ask(0, "", 0).Fence,
		}
		if _, ok := driver.As[driver.Lister](s.Driver); ok {
			shown["List"] = s.list(10, 10)[s.name.Key].State.Fence
		}
		for call, fence := range shown {
			if fence != asked {
				t.Errorf("%s shows %d, want the token %d of the ask", call, fence, asked)
			}
		}
		asked = s.asked(asked)
	}
}

func testAskTokens(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	last, floor := grant.FenceEnd, time.Now().Add(time.Hour).UnixMicro()
	for fence, want := grant.Fence, int64(0); want <= floor; want += floor {
		reply := s.ask(fence, "", want)
		if !reply.Asked || reply.Fence <= last || want != 0 && reply.Fence != want {
			t.Errorf("Ask with the floor %d: %+v, after the token %d", want, reply, last)
		}
		fence, last = reply.Fence, reply.Fence
	}
	if low := s.asked(last); low <= last {
		t.Errorf("the token %d after %d", low, last)
	} else {
		last = low
	}
	s.release(req, true)
	if next := s.granted(s.request()); next.Fence <= last {
		t.Errorf("fence %d after an ask with %d", next.Fence, last)
	}
}

func testAskRaise(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	asked := s.asked(grant.Fence)
	if kept := s.raised(req, grant.Fence); kept.Fence != grant.Fence || s.state().Fence != asked {
		t.Errorf("a raise to the present token answered %+v, and the name shows %d, want %d", kept, s.state().Fence, asked)
	}
	s.owns(grant.Fence)
	raised := s.raised(req, grant.Fence+1)
	if raised.Fence <= asked || s.state().Fence != raised.Fence {
		t.Errorf("a raise of a grant that was asked with %d: %+v, and the name shows %d", asked, raised, s.state().Fence)
	}
	s.isAsked(req, true)
	if reply := s.ask(asked, "", 0); reply.Asked {
		t.Errorf("Ask of the token before a raise: %+v", reply)
	}
	if again := s.asked(raised.Fence); again <= raised.FenceEnd {
		t.Errorf("the token %d of an ask after a block up to %d", again, raised.FenceEnd)
	}
	s.owns(raised.Fence)
}

func testAskFree(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	last := int64(0)
	for _, floor := range []int64{0, time.Now().Add(time.Hour).UnixMicro(), 0} {
		reply := s.ask(last, "work", floor)
		if reply.Asked || reply.State.Held || reply.Fence <= last || reply.Fence < floor || s.state().Held ||
			reply.Fence < time.Now().Add(-time.Minute).UnixMicro() { // the service may have a clock of its own
			t.Errorf("Ask of a free name, with the floor %d: %+v, after the token %d", floor, reply, last)
		}
		last = reply.Fence
	}
	req := s.request()
	grant := s.granted(req)
	if grant.Fence <= last {
		t.Errorf("fence %d after an ask of the free name with %d", grant.Fence, last)
	}
	s.isAsked(req, false)
	s.release(req, true)
	if reply := s.ask(0, "", 0); reply.Asked || reply.Fence <= grant.FenceEnd {
		t.Errorf("Ask of a released name: %+v, after a block up to %d", reply, grant.FenceEnd)
	}
}

func testAskFloor(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	far := time.Now().Add(driver.FloorAhead + time.Hour).UnixMicro()
	ask := func(req driver.AskRequest) {
		t.Helper()
		req.Name, req.Floor = s.name, far
		if reply, err := asker(s.Driver).Ask(t.Context(), req); !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
			t.Errorf("Ask with a floor more than a year ahead: %+v, %v; want ErrFloor", reply, err)
		}
	}
	ask(driver.AskRequest{})
	req := s.request()
	grant := s.granted(req)
	ask(driver.AskRequest{Fence: grant.Fence})
	if state := s.state(); grant.Fence >= far || state.Fence != grant.Fence {
		t.Errorf("a refused ask left the token %d, want %d", state.Fence, grant.Fence)
	}
	s.isAsked(req, false)
}

// notices counts the notices of the owner of a request. It is nil if none can come.
func (s *subject) notices(req driver.AcquireRequest) (notices chan bool, stop func()) {
	s.tb.Helper()
	notices = make(chan bool, 1000)
	stop, err := asker(s.Driver).NotifyAsks(context.Background(), req.Name.Namespace, func(owner string) {
		if owner == req.Owner {
			select {
			case notices <- true:
			default:
			}
		}
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil // the next renewal shows the ask
	} else if err != nil {
		s.tb.Fatalf("NotifyAsks: %v", err)
	}
	s.tb.Cleanup(stop)
	return notices, stop
}

// An ask is notified with the owner of the grant alone.
func testNotifyAsks(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	listener := s
	if s.Capabilities().AcrossProcesses {
		listener = newSubject(t, newDriver(t))
	}
	before, req := s.request(), s.request()
	silent, _ := listener.notices(before)
	if silent == nil {
		return
	}
	s.granted(before)
	s.release(before, true)
	stopped, stop := listener.notices(req)
	notices, _ := listener.notices(req)
	asked := s.asked(s.raised(req, s.granted(req).Fence+1).Fence)
	for n, each := range []chan bool{stopped, notices, notices} {
		if n == 2 {
			stop()
			s.asked(asked)
		}
		select {
		case <-each:
		case <-time.After(notified):
			t.Errorf("an ask was not notified: %d", n)
		}
	}
	if len(stopped) != 0 || len(silent) != 0 {
		t.Errorf("%d notices after stop, and %d of an owner before", len(stopped), len(silent))
	}
}

// A listener whose connection was cut hears of later asks.
func testCutAsks(t *testing.T, service Service) {
	d := service.New(t)
	if asker(d) == nil {
		return
	}
	s := newSubject(t, d)
	req := s.request()
	s.granted(req)
	notices, _ := s.notices(req)
	service.CutConnections()
	s.soon(func() error {
		look, err := asker(d).Ask(context.Background(), driver.AskRequest{Name: s.name})
		if err == nil {
			_, err = asker(d).Ask(context.Background(), driver.AskRequest{Name: s.name, Fence: look.Fence})
		}
		if err == nil && len(notices) == 0 {
			err = errors.New("an ask was not notified")
		}
		return err
	})
}
