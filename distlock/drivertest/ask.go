package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// askTests are those of driver.Interrupter.
var askTests = map[string]func(*testing.T, New){
	"N_anAskedHolderLearnsOfIt":      testAsk,
	"N_theEarliestMomentCounts":      testAskEarliest,
	"S1_toAskChangesNoRight":         testAskRights,
	"N_anotherGrantIsNotAsked":       testAskOther,
	"N_aListeningHolderIsWokenToEnd": testAskWakes,
	"N_theNextHolderIsNotAsked":      testAskAndHandoff,
}

func (s *subject) ask(fence int64, within time.Duration, want bool) {
	s.tb.Helper()
	interrupter, _ := driver.As[driver.Interrupter](s.Driver)
	asked, err := interrupter.AskToEnd(context.Background(), s.name, fence, within)
	if err != nil {
		s.tb.Fatalf("AskToEnd: %v", err)
	}
	if asked != want {
		s.tb.Fatalf("AskToEnd: %t, want %t", asked, want)
	}
}

// end is the request to end in the reply to an Extend.
func (s *subject) end(req driver.AcquireRequest) driver.EndRequest {
	s.tb.Helper()
	reply := s.Extend(context.Background(), []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: long}})[0]
	if reply.Err != nil || !reply.Held {
		s.tb.Fatalf("Extend: %+v", reply)
	}
	return reply.End
}

func (s *subject) asked(req driver.AcquireRequest, within time.Duration) {
	s.tb.Helper()
	if end := s.end(req); !end.Asked || end.Left > within || end.Left < within-long/10 {
		s.tb.Errorf("the holder learns %+v, want %s at most", end, within)
	}
}

func (s *subject) notAsked(req driver.AcquireRequest) {
	s.tb.Helper()
	if end := s.end(req); end != (driver.EndRequest{}) {
		s.tb.Errorf("a holder that was not asked learns %+v", end)
	}
}

func testAsk(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.ask(1, long, false)
	req := s.request()
	grant := s.granted(req)
	s.notAsked(req)
	s.ask(grant.Fence, long, true)
	s.asked(req, long)
	s.release(req, true)
	s.ask(grant.Fence, long, false)
	next := s.request()
	s.granted(next)
	s.notAsked(next)
}

func testAskEarliest(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	s.ask(grant.Fence, long/2, true)
	s.ask(grant.Fence, long, true)
	s.asked(req, long/2)
	s.ask(grant.Fence, 0, true)
	s.asked(req, 0) // the moment may have passed
}

func testAskRights(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	s.ask(grant.Fence, 0, true)
	pass(short)
	if st := s.state(); !st.Held || st.Fence != grant.Fence || st.TTL <= long/2 {
		t.Errorf("an asked holder is shown as %+v", st)
	}
	s.refused(s.request(), driver.Busy)
	s.raised(req, grant.FenceEnd+1)
	s.asked(req, 0)
	s.release(req, true)
}

func testAskOther(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	s.ask(grant.Fence-1, long, false)
	s.ask(grant.Fence+1, long, false)
	s.notAsked(req)
}

func testAskWakes(t *testing.T, newDriver New) {
	d := newDriver(t)
	if _, ok := driver.As[driver.Listener](d); !ok {
		return
	}
	s := newSubject(t, d)
	req := s.request()
	grant := s.granted(req)
	wakes, _ := s.listen(req)
	s.ask(grant.Fence, long, true)
	timeout := time.After(notified)
	for {
		select {
		case wake := <-wakes:
			if !wake.End.Asked { // any owner may be woken, at any time
				continue
			}
			if wake.End.Left > long || wake.End.Left < long-long/10 || wake.Grant.Outcome == driver.Granted {
				t.Errorf("an asked holder is woken by %+v", wake)
			}
			return
		case <-timeout:
			t.Fatal("an asked holder that listens is not woken")
		}
	}
}

// A request to end is for the holder, and not for the waiter that comes next.
func testAskAndHandoff(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	if !s.Capabilities().Queues {
		return
	}
	req := s.request()
	grant := s.granted(req)
	w := s.queued()
	s.ask(grant.Fence, long, true)
	w.notServed()
	s.release(req, true)
	if wake := w.served(); wake.End.Asked {
		t.Errorf("the next holder is woken by %+v", wake)
	}
	s.notAsked(w.req)
}

// lossTests are those of driver.LossNotifier.
var lossTests = map[string]func(*testing.T, New){
	"N_aBrokenGrantIsReportedAsLost": testLosses,
}

func testLosses(t *testing.T, newDriver New) {
	d := newDriver(t)
	if _, ok := driver.As[driver.Breaker](d); !ok {
		return
	}
	s := newSubject(t, d)
	notifier, _ := driver.As[driver.LossNotifier](s.Driver)
	listen := func() (losses chan string, stop func()) {
		losses = make(chan string, 100)
		stop = notifier.NotifyLosses(func(name driver.Name, owner string) {
			if name == s.name {
				losses <- owner
			}
		})
		t.Cleanup(stop)
		return losses, stop
	}
	broken := func() (owner string) {
		req := s.request()
		s.breakGrant(s.granted(req).Fence, true)
		return req.Owner
	}
	released := s.request()
	reported := func(losses <-chan string, owner string) {
		t.Helper()
		timeout := time.After(notified)
		for {
			select {
			case lost := <-losses:
				if lost == released.Owner {
					t.Error("the loss of a released grant was reported")
				}
				if lost == owner {
					return
				}
			case <-timeout:
				t.Fatal("the loss of a broken grant was not reported")
			}
		}
	}
	stopped, stop := listen()
	all, _ := listen()
	s.granted(released)
	s.release(released, true)
	reported(stopped, broken())
	stop()
	late := broken()
	reported(all, broken()) // after each report of late
	for len(stopped) > 0 {
		if <-stopped == late {
			t.Error("a loss was reported after stop")
		}
	}
}
