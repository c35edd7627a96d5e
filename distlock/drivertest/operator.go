package drivertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// listTests are those of driver.Lister.
var listTests = map[string]func(*testing.T, New){
	"listShowsTheHeldNames":  testListHeld,
	"listShowsQueuesInOrder": testListQueues,
	"listShowsOneName":       testListOne,
}

// breakTests are those of driver.Breaker.
var breakTests = map[string]func(*testing.T, New){
	"S1_breakEndsOneGrant":  testBreak,
	"S1_breakIsForOneToken": testBreakToken,
	"L_breakHandsOff":       testBreakQueue,
}

// list reads all pages of the subject's namespace.
func (s *subject) list(limit, waiters int) map[string]driver.Listed {
	s.tb.Helper()
	lister, _ := driver.As[driver.Lister](s.Driver)
	listed := make(map[string]driver.Listed)
	req := driver.ListRequest{Namespace: s.name.Namespace, Limit: limit, Waiters: waiters}
	for range 1000 {
		page, err := lister.List(context.Background(), req)
		if err != nil {
			s.tb.Fatalf("List: %v", err)
		}
		for _, l := range page.Names {
			if l.Name.Namespace != s.name.Namespace {
				s.tb.Errorf("the page of a namespace shows a name of another")
			}
			listed[l.Name.Key] = l
		}
		if req.After = page.Next; page.Next == "" {
			return listed
		}
	}
	s.tb.Fatal("the list has no last page")
	return nil
}

func testListHeld(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.name.Namespace = randomHex()
	want := make(map[string]driver.AcquireReply)
	for _, odd := range []string{"a", "b:c", "{d}", "e}", "*", "?f", "g%7D", "ä", "' \\ \"", strings.Repeat("k", 1024)} {
		s.name.Key = odd
		req := s.request()
		req.Holder = "holder of " + odd
		want[odd] = s.granted(req)
	}
	s.name.Key = "released"
	req := s.request()
	s.granted(req)
	s.release(req, true)
	s.name.Key = "expired"
	req = s.expiring()
	s.granted(req)
	s.awaitFree()
	elsewhere := newSubject(t, s.Driver)
	elsewhere.name.Namespace = s.name.Namespace + "x"
	elsewhere.granted(elsewhere.request())

	for _, limit := range []int{1, 3, 1000} {
		listed := s.list(limit, 0)
		for key, grant := range want {
			l, ok := listed[key]
			st := l.State
			if !ok || !st.Held || st.Fence != grant.Fence || st.Holder != "holder of "+key || st.TTL > long || l.Queue != nil {
				t.Errorf("pages of %d show %+v, %t; want the grant %+v", limit, l, ok, grant)
			}
		}
		if len(listed) != len(want) {
			t.Errorf("pages of %d show %d names, want %d", limit, len(listed), len(want))
		}
	}
}

func testListQueues(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	if !s.Capabilities().Queues {
		if listed := s.list(10, 10); len(listed) != 0 {
			t.Errorf("an empty namespace shows %+v", listed)
		}
		return
	}
	s.name.Namespace = randomHex()
	holder := s.request()
	holder.TTL = brief
	s.granted(holder)
	enter := func(name string, alive time.Duration) *waiter {
		w := s.waiter()
		w.req.Holder, w.req.Alive = name, alive
		w.enter()
		return w
	}
	enter("dead", short)
	first, second, third := enter("first", long), enter("second", long), enter("third", long)
	pass(short)
	queue := func(waiters int) (names []string) {
		for _, w := range s.list(1, waiters)[s.name.Key].Queue {
			names = append(names, w.Holder)
			if w.Ticket < 1 || w.Alive <= 0 || w.Alive > long {
				t.Errorf("a waiter is shown as %+v", w)
			}
		}
		return names
	}
	if got := queue(10); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the queue is shown as %q", got)
	}
	if got := queue(2); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("two waiters of the queue are shown as %q", got)
	}
	second.leave(false)
	s.awaitFree()
	listed := s.list(1, 10)[s.name.Key]
	if listed.State.Held || len(listed.Queue) != 2 ||
		listed.Queue[0].Ticket != first.req.Ticket || listed.Queue[1].Ticket != third.req.Ticket {
		t.Errorf("a free name with two waiters is shown as %+v", listed)
	}
}

func testListOne(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.name.Namespace = randomHex()
	for _, key := range []string{"a", "ab", "b"} {
		s.name.Key = key
		s.granted(s.request())
	}
	s.name.Key = "ab"
	if s.Capabilities().Queues {
		w := s.waiter()
		w.req.Holder, w.req.Metadata = "a waiter", map[string]string{"traceparent": "x"}
		w.enter()
	}
	lister, _ := driver.As[driver.Lister](s.Driver)
	req := driver.ListRequest{Namespace: s.name.Namespace, Key: "ab", Limit: 1, Waiters: 10}
	page, err := lister.List(context.Background(), req)
	if err != nil || len(page.Names) != 1 || page.Names[0].Name.Key != "ab" || !page.Names[0].State.Held ||
		page.Next != "" {
		t.Fatalf("the page of one name is %+v, %v", page, err)
	}
	if queue := page.Names[0].Queue; s.Capabilities().Queues &&
		(len(queue) != 1 || queue[0].Holder != "a waiter" || queue[0].Metadata["traceparent"] != "x") {
		t.Errorf("its queue is %+v", queue)
	}
	req.Key = "aa"
	if page, err := lister.List(context.Background(), req); err != nil || len(page.Names) != 0 || page.Next != "" {
		t.Errorf("the page of a free name is %+v, %v", page, err)
	}
}

func (s *subject) breakGrant(fence int64, want bool) {
	s.tb.Helper()
	breaker, _ := driver.As[driver.Breaker](s.Driver)
	broken, err := breaker.Break(context.Background(), s.name, fence)
	if err != nil {
		s.tb.Fatalf("Break: %v", err)
	}
	if broken != want {
		s.tb.Fatalf("Break: %t, want %t", broken, want)
	}
}

func testBreak(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	s.breakGrant(1, false)
	req := s.request()
	grant := s.granted(req)
	s.breakGrant(grant.Fence, true)
	if st := s.state(); st.Held {
		t.Errorf("a broken grant is shown as %+v", st)
	}
	s.extend(req, long, false)
	s.refused(req, driver.Cancelled)
	s.notRaised(req, 1)
	next := s.request()
	if second := s.granted(next); second.Fence <= grant.FenceEnd {
		t.Errorf("fence %d after a block that ends at %d", second.Fence, grant.FenceEnd)
	}
	s.breakGrant(grant.Fence, false)
	s.refused(req, driver.Cancelled)
	s.extend(next, long, true)
}

// After a handoff within a process, the tokens in the block are those of different leases.
func testBreakToken(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	for _, other := range []int64{grant.Fence - 1, grant.Fence + 1, grant.FenceEnd, grant.FenceEnd + 1} {
		s.breakGrant(other, false)
	}
	raised := s.raised(req, grant.FenceEnd+1)
	s.breakGrant(grant.Fence, false)
	s.extend(req, long, true)
	s.breakGrant(raised.Fence, true)
	s.extend(req, long, false)
}

func testBreakQueue(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	req := s.request()
	grant := s.granted(req)
	if !s.Capabilities().Queues {
		s.breakGrant(grant.Fence, true)
		s.granted(s.request())
		return
	}
	first, second := s.queued(), s.queued()
	s.breakGrant(grant.Fence, true)
	wake := first.served()
	second.notServed()
	s.breakGrant(grant.Fence, false)
	s.breakGrant(wake.Grant.Fence, true)
	second.served()
}
