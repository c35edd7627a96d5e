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

// waiter is an owner in line, that is told of its turn.
type waiter struct {
	*subject
	req   driver.AcquireRequest
	wakes <-chan driver.Wake
	deaf  func()
}

// waiter makes a new owner that listens, and does not stand in line yet. It would stay there for as long as no test lasts.
func (s *subject) waiter() *waiter {
	s.tb.Helper()
	w := &waiter{subject: s, req: s.request()}
	w.req.Alive = long
	w.wakes, w.deaf = s.listen(w.req)
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

// inLine is a waiter that stands in line.
func (s *subject) inLine() *waiter {
	s.tb.Helper()
	w := s.waiter()
	w.stand()
	return w
}

// stand lines the waiter up, or has it say that it is still there. Its request has to be answered with a place in line.
func (w *waiter) stand() driver.AcquireReply {
	w.tb.Helper()
	w.req.Seq++
	reply := w.refused(w.req, driver.Busy)
	if reply.Ticket < 1 {
		w.tb.Fatalf("the waiter does not stand in line: %+v", reply)
	}
	w.req.Ticket = reply.Ticket
	return reply
}

// handed waits until the waiter is told that the name is its own.
func (w *waiter) handed() driver.Wake {
	w.tb.Helper()
	timeout := time.NewTimer(notified)
	defer timeout.Stop()
	for {
		select {
		case wake := <-w.wakes:
			if wake.Seq == 0 { // anybody may be told to ask, at any time
				continue
			}
			if wake.Grant.Outcome != driver.Granted || wake.Grant.FenceEnd < wake.Grant.Fence || wake.TTL < driver.MinHandover || wake.Seq != w.req.Seq {
				w.tb.Errorf("woken by %+v, want a grant for %s at least, which names request %d", wake, driver.MinHandover, w.req.Seq)
			}
			st := w.state()
			over := !st.Held && wake.TTL == driver.MinHandover // already
			if !over && (st.Fence != wake.Grant.Fence || st.TTL > wake.TTL) {
				w.tb.Errorf("woken by %+v, and the service shows %+v", wake, st)
			}
			return wake
		case <-timeout.C:
			w.tb.Fatal("the name was not handed over")
		}
	}
}

// notHanded checks that the waiter has not been told anything, as far as that can be seen.
func (w *waiter) notHanded() {
	w.tb.Helper()
	select {
	case wake := <-w.wakes:
		if wake.Seq != 0 {
			w.tb.Errorf("one whose turn it is not was woken by %+v", wake)
		}
	default:
	}
}

func (w *waiter) claim() driver.AcquireReply {
	w.tb.Helper()
	w.req.Seq++
	return w.granted(w.req)
}

// leave takes the waiter out of the line, or ends its grant.
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
	var line []*waiter
	for i := range 4 {
		w := s.waiter()
		reply := w.stand()
		if i > 0 && reply.Ticket <= line[i-1].req.Ticket {
			t.Errorf("ticket %d after %d", reply.Ticket, line[i-1].req.Ticket)
		}
		if reply.State.Waiters != i+1 || reply.State.Holder != holder.Holder || s.state().Waiters != i+1 {
			t.Errorf("%d wait for %q, and it is said: %+v, %+v", i+1, holder.Holder, reply.State, s.state())
		}
		line = append(line, w)
	}
	for _, w := range line {
		if again := w.stand(); again.State.Waiters != len(line) { // it keeps its place
			t.Errorf("a waiter that asks again: %+v", again)
		}
	}
	for i, w := range line {
		s.release(holder, true)
		wake := w.handed()
		behind := len(line) - i - 1
		if wake.Grant.Fence <= end || wake.Grant.Waiters != behind {
			t.Errorf("handed over to %d: %+v, after a block up to %d, with %d behind", i, wake, end, behind)
		}
		if grant := w.claim(); grant.Fence != wake.Grant.Fence || grant.FenceEnd != wake.Grant.FenceEnd || grant.Waiters != behind {
			t.Errorf("the claim is answered %+v, handed over was %+v", grant, wake.Grant)
		}
		s.extend(w.req, long, false, true)
		for _, other := range line[i+1:] {
			other.notHanded()
		}
		holder, end = w.req, wake.Grant.FenceEnd
	}
	s.release(holder, true)
	if st := s.state(); st.Held {
		t.Errorf("all have been served, and the service shows %+v", st)
	}
}

// Many line up at once; each is served once, in the order of the tickets.
func testAllAreServed(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	line := make([]*waiter, 32)
	for i := range line {
		line[i] = s.waiter()
	}
	var lining sync.WaitGroup
	for _, w := range line {
		lining.Go(func() {
			w.req.Seq++
			reply, err := s.Acquire(context.Background(), w.req)
			if err != nil || reply.Outcome != driver.Busy {
				t.Errorf("Acquire: %+v, %v", reply, err)
			}
			w.req.Ticket = reply.Ticket
		})
	}
	lining.Wait()
	slices.SortFunc(line, func(a, b *waiter) int { return cmp.Compare(a.req.Ticket, b.req.Ticket) })
	for i, w := range line {
		if i > 0 && w.req.Ticket == line[i-1].req.Ticket {
			t.Fatalf("two have the ticket %d", w.req.Ticket)
		}
		s.release(holder, true)
		w.handed()
		holder = w.req
	}
	s.release(holder, true)
	for _, w := range line {
		w.notHanded()
	}
	s.held()
}

// Whoever finds the name free while somebody waits hands it over, and does not get it.
func testNobodyOvertakes(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	end := s.granted(holder).FenceEnd
	first, second := s.waiter(), s.waiter()
	first.req.Holder, first.req.Metadata = "the first in line", map[string]string{"traceparent": "first"}
	first.stand()
	second.stand()
	s.extend(holder, short, true, true)
	s.awaitFree()
	first.notHanded()

	newcomer := s.request()
	reply := s.refused(newcomer, driver.Busy)
	wake := first.handed()
	if wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	for _, st := range []driver.State{reply.State, s.state()} {
		if st.Holder != first.req.Holder || st.Metadata["traceparent"] != "first" || st.Fence != wake.Grant.Fence || st.Waiters != 1 {
			t.Errorf("the name was handed over, and is shown as %+v", st)
		}
	}
	if reply.Ticket != 0 {
		t.Errorf("one that only asks has the ticket %d", reply.Ticket)
	}
	s.release(first.req, true)
	second.handed()
	s.refused(newcomer, driver.Busy)
}

// The same by one who stands in line, and comes behind those who were there.
func testNobodyOvertakesInLine(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.inLine(), s.waiter()
	s.extend(holder, short, true, true)
	s.awaitFree()
	second.stand()
	first.handed()
	if second.req.Ticket <= first.req.Ticket {
		t.Errorf("ticket %d after %d", second.req.Ticket, first.req.Ticket)
	}
	// It is the next now, so it may ask for itself when the name is free again.
	s.extend(first.req, short, true, true)
	s.awaitFree()
	second.claim()
	second.notHanded()
	if st := s.state(); st.Waiters != 0 {
		t.Errorf("nobody waits any more, and it is said: %+v", st)
	}
	s.release(second.req, true)
	s.held() // nor is it handed to one who has had it
}

// Who has promised to ask again, and has not, is passed over.
func testTheDeadAreDropped(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	dead, gone := s.waiter(), s.waiter()
	dead.req.Alive, gone.req.Alive = short, short
	dead.stand()
	gone.stand()
	alive, last := s.inLine(), s.inLine()
	pass(short)
	s.release(holder, true)
	alive.handed()
	dead.notHanded()
	if st := s.state(); st.Waiters != 1 {
		t.Errorf("one waits, and it is said: %+v", st)
	}
	dead.req.Alive = long
	ticket := dead.req.Ticket
	if dead.stand(); dead.req.Ticket != ticket {
		t.Errorf("who was dropped has entered at %d, not at its ticket %d", dead.req.Ticket, ticket)
	}
	s.release(alive.req, true)
	dead.handed()
	last.notHanded()
}

// A promise is never taken back, by a later one that is shorter; a longer one counts.
func testPromisesOnlyGrow(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.inLine(), s.waiter()
	first.req.Alive, second.req.Alive = time.Millisecond, short
	first.stand()
	second.stand()
	second.req.Alive = long
	second.stand()
	pass(short)
	s.release(holder, true)
	for _, w := range []*waiter{first, second} {
		if wake := w.handed(); wake.TTL < long/2 || wake.TTL > long {
			t.Errorf("handed over for %s, of a promise of %s", wake.TTL, long)
		}
		s.release(w.req, true)
	}
}

// An owner that has left the line, or that another takes over from, comes back at its old ticket.
func testReentersAtItsTicket(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.inLine(), s.inLine()
	first.leave(false)
	heir := s.waiter()
	heir.req.Ticket = first.req.Ticket
	if reply := heir.stand(); reply.Ticket != first.req.Ticket || reply.State.Waiters != 2 {
		t.Errorf("entered with the ticket %d: %+v", first.req.Ticket, reply)
	}
	s.release(holder, true)
	heir.handed()
	second.notHanded()
	// Nor has it to wait, where the name is free and all in line come later.
	early := s.waiter()
	early.req.Ticket = first.req.Ticket
	s.extend(heir.req, short, true, true)
	s.awaitFree()
	early.claim()
	second.notHanded()
}

func testLeaving(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	head, next, middle, last := s.inLine(), s.inLine(), s.inLine(), s.inLine()
	middle.leave(false)
	head.leave(false)
	head.leave(false)
	if st := s.state(); !st.Held || st.Waiters != 2 {
		t.Errorf("two of four have left, and the service shows %+v", st)
	}
	s.release(holder, true)
	next.handed()
	next.leave(true) // in the moment in which it was handed the name
	last.handed()
	next.leave(true) // again: a copy, that must not touch the next one's grant
	last.claim()
	if reply := s.acquire(next.req); reply.Outcome != driver.Void {
		t.Errorf("a copy of a request of one who has left: %+v", reply)
	}
	last.leave(true)
	if st := s.state(); st.Held {
		t.Errorf("all have left, and the service shows %+v", st)
	}
	for _, w := range []*waiter{head, middle} {
		w.notHanded()
	}
}

// To be told is not to hold: who does not listen any more is handed the name all the same, and nobody else is told.
func testDeafIsHanded(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	deaf, next := s.inLine(), s.inLine()
	deaf.deaf()
	s.release(holder, true)
	st := s.state()
	if !st.Held || st.Waiters != 1 {
		t.Errorf("the service shows %+v", st)
	}
	if grant := deaf.claim(); grant.Fence != st.Fence {
		t.Errorf("the claim is answered %+v, handed over was %+v", grant, st)
	}
	deaf.notHanded()
	next.notHanded()
}
