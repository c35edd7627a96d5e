package drivertest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// notified bounds how long a wake may take.
const notified = 20 * short

// waiter is an owner that listens, and may be in the queue.
type waiter struct {
	*subject
	req   driver.AcquireRequest
	wakes <-chan driver.Wake
	stop  func()
}

// waiter makes an owner that listens, and is not in the queue yet. Its promise outlasts the test.
func (s *subject) waiter() *waiter {
	s.tb.Helper()
	w := &waiter{subject: s, req: s.request()}
	w.req.Alive = long
	w.wakes, w.stop = s.listen(w.req)
	return w
}

// listen lets the request's owner receive wakes until stop is called, or the test ends.
func (s *subject) listen(req driver.AcquireRequest) (wakes <-chan driver.Wake, stop func()) {
	s.tb.Helper()
	listener, ok := driver.As[driver.Listener](s.Driver)
	if !ok {
		s.tb.Fatal("the driver has a queue and no Listener")
	}
	wakes, stop, err := listener.Listen(context.Background(), req.Name, req.Owner)
	if err != nil {
		s.tb.Fatalf("Listen: %v", err)
	}
	s.tb.Cleanup(stop)
	return wakes, stop
}

// queued is a waiter in the queue.
func (s *subject) queued() *waiter {
	s.tb.Helper()
	w := s.waiter()
	w.enter()
	return w
}

// enter puts the waiter into the queue, or renews its promise.
func (w *waiter) enter() driver.AcquireReply {
	w.tb.Helper()
	w.req.Seq++
	reply := w.refused(w.req, driver.Busy)
	if reply.Ticket < 1 {
		w.tb.Fatalf("the waiter is not in the queue: %+v", reply)
	}
	w.req.Ticket = reply.Ticket
	return reply
}

// served waits until a wake brings the waiter a handoff. After the zero Wake the waiter asks, in a way that
// prolongs nothing.
func (w *waiter) served() driver.Wake {
	w.tb.Helper()
	timeout := time.NewTimer(notified)
	defer timeout.Stop()
	for {
		select {
		case wake := <-w.wakes:
			if wake.Seq == 0 {
				req := w.req
				req.TTL, req.Alive = time.Millisecond, 0
				reply := w.acquire(req)
				if reply.Outcome != driver.Granted { // the zero Wake may come at any time
					continue
				}
				st := w.state()
				wake = driver.Wake{Grant: reply, Seq: w.req.Seq, TTL: st.Age + st.TTL}
			}
			if wake.Grant.Outcome != driver.Granted || wake.Grant.FenceEnd < wake.Grant.Fence ||
				wake.TTL < driver.MinHandoff || wake.Seq != w.req.Seq {
				w.tb.Errorf("woken by %+v, want a grant for %s at least, after request %d",
					wake, driver.MinHandoff, w.req.Seq)
			}
			st := w.state()
			over := !st.Held && wake.TTL == driver.MinHandoff // already
			if !over && (st.Fence != wake.Grant.Fence || st.TTL > wake.TTL) {
				w.tb.Errorf("woken by %+v, and the service shows %+v", wake, st)
			}
			return wake
		case <-timeout.C:
			w.tb.Fatal("the waiter was not served")
		}
	}
}

// notServed checks that no handoff has come to the waiter so far.
func (w *waiter) notServed() {
	w.tb.Helper()
	select {
	case wake := <-w.wakes:
		if wake.Seq != 0 {
			w.tb.Errorf("a waiter that is not the first was woken by %+v", wake)
		}
	default:
	}
}

func (w *waiter) claim() driver.AcquireReply {
	w.tb.Helper()
	w.req.Seq++
	return w.granted(w.req)
}

// leave takes the waiter out of the queue, or ends its grant.
func (w *waiter) leave(held bool) {
	w.tb.Helper()
	reply, err := w.Release(context.Background(), driver.ReleaseRequest{Name: w.req.Name, Owner: w.req.Owner, Leave: true})
	if err != nil {
		w.tb.Fatalf("Release: %v", err)
	}
	if reply.Released != held {
		w.tb.Errorf("leaving: Released is %t, want %t", reply.Released, held)
	}
}

// held takes the name, for as long as no test lasts.
func (s *subject) held() driver.AcquireRequest {
	s.tb.Helper()
	req := s.request()
	s.granted(req)
	return req
}

// pass waits until d has passed by the service's clock too.
func pass(d time.Duration) { time.Sleep(d + tick) }

func testFirstComeFirstServed(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.Holder = "the holder"
	end := s.granted(holder).FenceEnd
	var waiters []*waiter
	for i := range 4 {
		w := s.waiter()
		reply := w.enter()
		if i > 0 && reply.Ticket <= waiters[i-1].req.Ticket {
			t.Errorf("ticket %d after %d", reply.Ticket, waiters[i-1].req.Ticket)
		}
		if reply.State.Waiters != i+1 || reply.State.Holder != holder.Holder || s.state().Waiters != i+1 {
			t.Errorf("%d wait for %q, and the service shows %+v, %+v", i+1, holder.Holder, reply.State, s.state())
		}
		waiters = append(waiters, w)
	}
	for _, w := range waiters {
		if again := w.enter(); again.State.Waiters != len(waiters) { // it keeps its place
			t.Errorf("a waiter that asks again: %+v", again)
		}
	}
	for i, w := range waiters {
		s.release(holder, true)
		wake := w.served()
		behind := len(waiters) - i - 1
		if wake.Grant.Fence <= end || wake.Grant.Waiters != behind {
			t.Errorf("a handoff to %d: %+v, after a block up to %d, with %d behind", i, wake, end, behind)
		}
		grant := w.claim()
		if grant.Fence != wake.Grant.Fence || grant.FenceEnd != wake.Grant.FenceEnd || grant.Waiters != behind {
			t.Errorf("the claim is answered %+v, the handoff was %+v", grant, wake.Grant)
		}
		s.extend(w.req, long, true)
		for _, other := range waiters[i+1:] {
			other.notServed()
		}
		holder, end = w.req, wake.Grant.FenceEnd
	}
	s.release(holder, true)
	if st := s.state(); st.Held {
		t.Errorf("all have been served, and the service shows %+v", st)
	}
}

// Many enter at once. Each is served once, in the order of the tickets.
func testAllAreServed(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	waiters := make([]*waiter, 32)
	for i := range waiters {
		waiters[i] = s.waiter()
	}
	var entering sync.WaitGroup
	for _, w := range waiters {
		entering.Go(func() {
			w.req.Seq++
			reply, err := s.Acquire(context.Background(), w.req)
			if err != nil || reply.Outcome != driver.Busy {
				t.Errorf("Acquire: %+v, %v", reply, err)
			}
			w.req.Ticket = reply.Ticket
		})
	}
	entering.Wait()
	slices.SortFunc(waiters, func(a, b *waiter) int { return cmp.Compare(a.req.Ticket, b.req.Ticket) })
	for i, w := range waiters {
		if i > 0 && w.req.Ticket == waiters[i-1].req.Ticket {
			t.Fatalf("two have the ticket %d", w.req.Ticket)
		}
		s.release(holder, true)
		w.served()
		holder = w.req
	}
	s.release(holder, true)
	for _, w := range waiters {
		w.notServed()
	}
	s.held()
}

// A request that finds the name free hands it to the first waiter, and does not get it.
func testNoRequestOvertakes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.TTL = brief
	end := s.granted(holder).FenceEnd
	first, second := s.waiter(), s.waiter()
	first.req.Holder, first.req.Metadata = "the first waiter", map[string]string{"traceparent": "first"}
	first.enter()
	second.enter()
	s.awaitFree()
	first.notServed()

	newcomer := s.request()
	reply := s.refused(newcomer, driver.Busy)
	wake := first.served()
	if wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	for _, st := range []driver.State{reply.State, s.state()} {
		if st.Holder != first.req.Holder || st.Metadata["traceparent"] != "first" ||
			st.Fence != wake.Grant.Fence || st.Waiters != 1 {
			t.Errorf("after a handoff the name is shown as %+v", st)
		}
	}
	if reply.Ticket != 0 {
		t.Errorf("a request without Alive has the ticket %d", reply.Ticket)
	}
	s.release(first.req, true)
	second.served()
	s.refused(newcomer, driver.Busy)
}

// So does a request with Alive, which enters behind the others.
func testNoWaiterOvertakes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.TTL = brief
	s.granted(holder)
	first, second := s.waiter(), s.waiter()
	first.req.Alive = 2 * brief // its handoff lasts for the rest of it
	first.enter()
	s.awaitFree()
	second.enter()
	first.served()
	if second.req.Ticket <= first.req.Ticket {
		t.Errorf("ticket %d after %d", second.req.Ticket, first.req.Ticket)
	}
	// It is the first now, so its request gets the free name.
	s.awaitFree()
	second.claim()
	second.notServed()
	if st := s.state(); st.Waiters != 0 {
		t.Errorf("no waiter is left, and the service shows %+v", st)
	}
	s.release(second.req, true)
	s.held() // no handoff goes to an owner that was served
}

// A waiter whose promise has ended is dropped.
func testDeadDropped(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	dead, gone := s.waiter(), s.waiter()
	dead.req.Alive, gone.req.Alive = short, short
	dead.enter()
	gone.enter()
	alive, last := s.queued(), s.queued()
	pass(short)
	s.release(holder, true)
	alive.served()
	dead.notServed()
	if st := s.state(); st.Waiters != 1 {
		t.Errorf("one waiter, and the service shows %+v", st)
	}
	dead.req.Alive = long
	ticket := dead.req.Ticket
	if dead.enter(); dead.req.Ticket != ticket {
		t.Errorf("a dropped waiter has entered at %d, not at its ticket %d", dead.req.Ticket, ticket)
	}
	s.release(alive.req, true)
	dead.served()
	last.notServed()
}

// A later promise that is shorter does not count; a longer one does.
func testPromisesOnlyGrow(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.queued(), s.waiter()
	first.req.Alive, second.req.Alive = time.Millisecond, short
	first.enter()
	second.enter()
	second.req.Alive = long
	second.enter()
	pass(short)
	s.release(holder, true)
	for _, w := range []*waiter{first, second} {
		if wake := w.served(); wake.TTL < long/2 || wake.TTL > long {
			t.Errorf("a handoff for %s, of a promise of %s", wake.TTL, long)
		}
		s.release(w.req, true)
	}
}

// A waiter that has left the queue enters again at its ticket, also under another owner.
func testReentersAtItsTicket(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.queued(), s.queued()
	first.leave(false)
	heir := s.waiter()
	heir.req.Ticket, heir.req.Alive = first.req.Ticket, brief
	if reply := heir.enter(); reply.Ticket != first.req.Ticket || reply.State.Waiters != 2 {
		t.Errorf("entered with the ticket %d: %+v", first.req.Ticket, reply)
	}
	s.release(holder, true)
	heir.served()
	second.notServed()
	// It does not wait if the name is free and all tickets in the queue are later.
	early := s.waiter()
	early.req.Ticket = first.req.Ticket
	s.awaitFree()
	early.claim()
	second.notServed()
}

func testLeaving(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	head, next, middle, last := s.queued(), s.queued(), s.queued(), s.queued()
	middle.leave(false)
	head.leave(false)
	head.leave(false)
	if st := s.state(); !st.Held || st.Waiters != 2 {
		t.Errorf("two of four have left, and the service shows %+v", st)
	}
	s.release(holder, true)
	next.served()
	next.leave(true) // just after its handoff
	last.served()
	next.leave(true) // a copy, which must not touch the next grant
	last.claim()
	if reply := s.acquire(next.req); reply.Outcome != driver.Cancelled {
		t.Errorf("a copy of a request of an owner that has left: %+v", reply)
	}
	last.leave(true)
	if st := s.state(); st.Held {
		t.Errorf("all have left, and the service shows %+v", st)
	}
	for _, w := range []*waiter{head, middle} {
		w.notServed()
	}
}

// A waiter that no longer listens is served, too.
func testWithoutWakes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	silent, next := s.queued(), s.queued()
	silent.stop()
	s.release(holder, true)
	st := s.state()
	if !st.Held || st.Waiters != 1 {
		t.Errorf("the service shows %+v", st)
	}
	if grant := silent.claim(); grant.Fence != st.Fence {
		t.Errorf("the claim is answered %+v, the handoff was %+v", grant, st)
	}
	silent.notServed()
	next.notServed()
}
