package drivertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// A claim gives a handoff the full TTL. It is an Acquire or an Extend.
func testClaim(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	byAcquire, byExtend := s.waiter(), s.waiter()
	for _, w := range []*waiter{byAcquire, byExtend} {
		w.req.Alive = long / 2
		w.enter()
	}
	s.release(holder, true)
	for _, w := range []*waiter{byAcquire, byExtend} {
		wake := w.served()
		if wake.TTL > w.req.Alive {
			t.Errorf("a handoff for %s, of a promise of %s", wake.TTL, w.req.Alive)
		}
		if w == byAcquire {
			w.claim()
		} else {
			s.extend(w.req, long, true)
		}
		if left := s.state().TTL; left <= w.req.Alive {
			t.Errorf("%s left after the claim of a TTL of %s", left, long)
		}
		s.release(w.req, true)
	}
}

// A handoff without a claim ends soon, and its owner never holds the name again.
func testUnclaimed(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	var late, next, last *waiter
	for inTime := false; !inTime; { // or it counts as dead
		s.name = freshName()
		holder := s.held()
		late = s.waiter()
		late.req.Alive = driver.MinHandoff - 100*time.Millisecond // less than a handoff lasts at least
		promised := time.Now()
		late.enter()
		next, last = s.queued(), s.queued()
		s.release(holder, true)
		inTime = time.Since(promised) < late.req.Alive
	}
	wake := late.served()
	if wake.TTL != driver.MinHandoff {
		t.Errorf("a handoff for %s, want %s after a promise of %s", wake.TTL, driver.MinHandoff, late.req.Alive)
	}
	end := wake.Grant.FenceEnd
	s.awaitFree()
	next.notServed()
	late.req.Seq++
	s.refused(late.req, driver.Cancelled)
	s.refused(s.request(), driver.Busy) // the request finds the name free
	if wake := next.served(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	s.extend(late.req, long, false)
	s.release(late.req, false)
	again := s.waiter()
	again.req.Ticket = late.req.Ticket
	again.enter()
	s.release(next.req, true)
	again.served()
	last.notServed()
}

// A cancelled owner is not in the queue, whichever came first.
func testCancelledDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	before, after, other := s.waiter(), s.queued(), s.queued()
	s.releaseWithTombstone(before.req, long, false)
	cancel := driver.ReleaseRequest{Name: s.name, Owner: after.req.Owner, Tombstone: long, Leave: true}
	if _, err := s.Release(context.Background(), cancel); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*waiter{before, after} {
		w.req.Seq++
		if reply := s.refused(w.req, driver.Cancelled); reply.Ticket != 0 {
			t.Errorf("a cancelled owner has the ticket %d", reply.Ticket)
		}
	}
	if st := s.state(); st.Waiters != 1 {
		t.Errorf("one waiter, and the service shows %+v", st)
	}
	s.release(holder, true)
	other.served()
	for _, w := range []*waiter{before, after} {
		w.notServed()
		s.refused(w.req, driver.Cancelled)
	}
}

// An owner whose grant has ended does not enter the queue, as a copy of its request would.
func testReleasedDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	s.release(holder, true)
	s.held()
	holder.Alive, holder.Seq = long, 1
	s.refused(holder, driver.Cancelled)
	if st := s.state(); st.Waiters != 0 {
		t.Errorf("no waiter, and the service shows %+v", st)
	}
}

// The holder does not wait behind itself.
func testHolderDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.Alive, holder.Seq = long, 1
	first := s.granted(holder)
	if again := s.granted(holder); again.Fence != first.Fence || again.Waiters != 0 {
		t.Errorf("granted %+v, then %+v", first, again)
	}
	w := s.queued()
	if again := s.granted(holder); again.Fence != first.Fence || again.Waiters != 1 {
		t.Errorf("granted %+v, then %+v, with one waiting", first, again)
	}
	s.release(holder, true)
	w.served()
}

// A raise changes nothing for the waiters.
func testRaiseWithWaiters(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.queued(), s.queued()
	raise := func(req driver.AcquireRequest) int64 {
		return s.raised(req, s.state().Fence+time.Hour.Microseconds()).FenceEnd
	}
	end := raise(holder)
	s.notRaised(first.req, end+1)
	s.release(holder, true)
	if wake := first.served(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	end = raise(first.req)
	s.release(first.req, true)
	if wake := second.served(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
}

// The driver of the waiter is woken, whichever driver sends the release.
func testRightDriver(t *testing.T, newDriver New) {
	a, b := newSubject(t, newDriver(t)), newSubject(t, newDriver(t))
	if !a.Capabilities().AcrossProcesses {
		return
	}
	b.name = a.name
	holder := a.held()
	inB, inA := b.queued(), a.queued()
	elsewhere, _ := a.listen(inB.req)
	a.release(holder, true)
	inB.served()
	b.release(inB.req, true)
	inA.served() // earlier messages to a have arrived
	select {
	case wake := <-elsewhere:
		if wake.Seq != 0 {
			t.Errorf("the other driver was woken by %+v", wake)
		}
	default:
	}
}

// The queue has a limit. Dead waiters do not count.
func testFullQueue(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first := s.queued()
	dead := s.waiter()
	dead.req.Alive = short
	dead.enter()
	died := time.Now().Add(short)
	var entering sync.WaitGroup
	var left atomic.Int64
	left.Store(driver.MaxQueue - 2)
	for range 16 {
		entering.Go(func() {
			for left.Add(-1) >= 0 {
				req := s.request()
				req.Alive, req.Seq = long, 1
				if reply, err := s.Acquire(context.Background(), req); err != nil || reply.Outcome != driver.Busy {
					t.Errorf("Acquire: %+v, %v", reply, err)
				}
			}
		})
	}
	entering.Wait()
	pass(time.Until(died))
	last, late := s.queued(), s.waiter()
	late.req.Seq++
	if reply := s.refused(late.req, driver.Full); reply.Ticket != 0 || reply.State.Waiters != driver.MaxQueue {
		t.Errorf("the queue is full: %+v", reply)
	}
	dead.req.Alive = long
	dead.req.Seq++
	s.refused(dead.req, driver.Full) // its place was given to another
	for _, w := range []*waiter{first, last} {
		if reply := w.enter(); reply.State.Waiters != driver.MaxQueue {
			t.Errorf("a waiter of a full queue keeps its place: %+v", reply)
		}
	}
	s.release(holder, true)
	first.served()
	late.enter()
}
