package drivertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// A claim makes a whole grant of a hand-over. It is an acquire, or an extend.
func testClaim(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	byAcquire, byExtend := s.waiter(), s.waiter()
	for _, w := range []*waiter{byAcquire, byExtend} {
		w.req.Alive = long / 2
		w.stand()
	}
	s.release(holder, true)
	for _, w := range []*waiter{byAcquire, byExtend} {
		wake := w.handed()
		if wake.TTL > w.req.Alive {
			t.Errorf("handed over for %s, of a promise of %s", wake.TTL, w.req.Alive)
		}
		if w == byAcquire {
			w.claim()
		} else {
			s.extend(w.req, long, false, true)
		}
		if left := s.state().TTL; left <= w.req.Alive {
			t.Errorf("%s left after the claim of a TTL of %s", left, long)
		}
		s.release(w.req, true)
	}
}

// A hand-over that nobody claims is over soon, and its owner can hold the name no more.
func testUnclaimed(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	var late, next, last *waiter
	for inTime := false; !inTime; { // or it counts as dead
		s.name = freshName()
		holder := s.held()
		late = s.waiter()
		late.req.Alive = driver.MinHandover - 100*time.Millisecond // less than a handoff lasts at least
		promised := time.Now()
		late.stand()
		next, last = s.inLine(), s.inLine()
		s.release(holder, true)
		inTime = time.Since(promised) < late.req.Alive
	}
	wake := late.handed()
	if wake.TTL != driver.MinHandover {
		t.Errorf("handed over for %s, want %s of what is left of a promise of %s", wake.TTL, driver.MinHandover, late.req.Alive)
	}
	end := wake.Grant.FenceEnd
	s.awaitFree()
	next.notHanded()
	late.req.Seq++
	s.refused(late.req, driver.Void)
	s.refused(s.request(), driver.Busy) // somebody finds it free
	if wake := next.handed(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	s.extend(late.req, long, false, false)
	s.release(late.req, false)
	again := s.waiter()
	again.req.Ticket = late.req.Ticket
	again.stand()
	s.release(next.req, true)
	again.handed()
	last.notHanded()
}

// An owner that was cancelled does not stand in line, whichever came first.
func testCancelledDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	before, after, other := s.waiter(), s.inLine(), s.inLine()
	s.releaseVoid(before.req, long, false)
	if _, err := s.Release(context.Background(), driver.ReleaseRequest{Name: after.req.Name, Owner: after.req.Owner, VoidFor: long, Leave: true}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*waiter{before, after} {
		w.req.Seq++
		if reply := s.refused(w.req, driver.Void); reply.Ticket != 0 {
			t.Errorf("a cancelled owner has the ticket %d", reply.Ticket)
		}
	}
	if st := s.state(); st.Waiters != 1 {
		t.Errorf("one waits, and it is said: %+v", st)
	}
	s.release(holder, true)
	other.handed()
	for _, w := range []*waiter{before, after} {
		w.notHanded()
		s.refused(w.req, driver.Void)
	}
}

// One whose grant is over does not stand in line under the same owner, as a copy of its request would.
func testReleasedDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	s.release(holder, true)
	s.held()
	holder.Alive, holder.Seq = long, 1
	s.refused(holder, driver.Void)
	if st := s.state(); st.Waiters != 0 {
		t.Errorf("nobody waits, and it is said: %+v", st)
	}
}

// The holder does not stand in line behind itself.
func testHolderDoesNotWait(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.request()
	holder.Alive, holder.Seq = long, 1
	first := s.granted(holder)
	if again := s.granted(holder); again.Fence != first.Fence || again.Waiters != 0 {
		t.Errorf("granted %+v, then %+v", first, again)
	}
	w := s.inLine()
	if again := s.granted(holder); again.Fence != first.Fence || again.Waiters != 1 {
		t.Errorf("granted %+v, then %+v, with one waiting", first, again)
	}
	s.release(holder, true)
	w.handed()
}

// A raise changes nothing for the waiters.
func testRaiseWithWaiters(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first, second := s.inLine(), s.inLine()
	raise := func(req driver.AcquireRequest) int64 {
		return s.raised(req, s.state().Fence+time.Hour.Microseconds()).FenceEnd
	}
	end := raise(holder)
	s.notRaised(first.req, end+1)
	s.release(holder, true)
	if wake := first.handed(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
	end = raise(first.req)
	s.release(first.req, true)
	if wake := second.handed(); wake.Grant.Fence <= end {
		t.Errorf("fence %d after a block up to %d", wake.Grant.Fence, end)
	}
}

// Of several drivers of one service the one is told whose waiter it is, whichever has released.
func testTheRightDriverIsTold(t *testing.T, newDriver New) {
	a, b := newSubject(t, newDriver(t)), newSubject(t, newDriver(t))
	if !a.Capabilities().Shared {
		return
	}
	b.name = a.name
	holder := a.held()
	inB, inA := b.inLine(), a.inLine()
	elsewhere, _ := a.listen(inB.req)
	a.release(holder, true)
	inB.handed()
	b.release(inB.req, true)
	inA.handed() // and what was sent to a before has arrived
	select {
	case wake := <-elsewhere:
		if wake.Seq != 0 {
			t.Errorf("the other driver was told %+v", wake)
		}
	default:
	}
}

// A line has an end. Those who have gone without a word do not count.
func testFullLine(t *testing.T, newDriver New) {
	s := newSubject(t, newDriver(t))
	holder := s.held()
	first := s.inLine()
	dead := s.waiter()
	dead.req.Alive = short
	dead.stand()
	died := time.Now().Add(short)
	var lining sync.WaitGroup
	var left atomic.Int64
	left.Store(driver.MaxLine - 2)
	for range 16 {
		lining.Go(func() {
			for left.Add(-1) >= 0 {
				req := s.request()
				req.Alive, req.Seq = long, 1
				if reply, err := s.Acquire(context.Background(), req); err != nil || reply.Outcome != driver.Busy {
					t.Errorf("Acquire: %+v, %v", reply, err)
				}
			}
		})
	}
	lining.Wait()
	pass(time.Until(died))
	last, late := s.inLine(), s.waiter()
	late.req.Seq++
	if reply := s.refused(late.req, driver.Full); reply.Ticket != 0 || reply.State.Waiters != driver.MaxLine {
		t.Errorf("the line is full: %+v", reply)
	}
	dead.req.Alive = long
	dead.req.Seq++
	s.refused(dead.req, driver.Full) // its place was given to another
	for _, w := range []*waiter{first, last} {
		if reply := w.stand(); reply.State.Waiters != driver.MaxLine {
			t.Errorf("who stands in a full line keeps its place: %+v", reply)
		}
	}
	s.release(holder, true)
	first.handed()
	late.stand()
}
