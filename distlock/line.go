package distlock

import (
	"cmp"
	"sync"
	"time"
)

// handoverWindow is for how long after a grant of the lock service the lock is handed on within the process. It bounds
// by how much those who wait in other processes are overtaken, and how worn the TTL is that a lease begins with.
const handoverWindow = 10 * time.Millisecond

// lines are the queues of a Locker, one for each key that somebody holds or wants through it. In a line, one contender
// at most asks the lock service; the others wait, first come first served, until the lock is handed to them or it is
// their turn to ask. Package documentation has the states.
//
// Lock order: a lease's mu may be held when lines' mu is taken, never the other way round.
type lines struct {
	locker *Locker

	mu    sync.Mutex
	byKey map[string]*line
	// turns are the channels on which waiters are told. Each is used for one turn, or for none, before it comes back.
	turns sync.Pool
}

// line is the queue of one key.
type line struct {
	key       string
	contender *acquisition // asks the lock service
	holder    *Lease       // holds the lock, or is giving it back
	waiting   waiting
	arrivals  uint64
	window    *time.Timer // runs while somebody waits for the end of the holder's window
	said      said
	failures  int   // contenders in a row that failed without an answer of the backend
	ticket    int64 // in the service's line, of the last contender that left
}

// said is what the lock service has told a line: those who leave it know why they have waited.
type said struct {
	blocked *BusyError // the last answer, if it was busy
	at      time.Time  // when that came
	blocker map[string]string
	failure error // what came after it instead of an answer
}

// aged is the last busy answer as it would be now, if the holder is still the same.
func (s *said) aged() *BusyError {
	blocked := *s.blocked
	blocked.Held += time.Since(s.at)
	return &blocked
}

// waiting is a list of those who wait, in the order of their arrival.
type waiting struct {
	first, last *acquisition
	n           int
}

// place is where one of them stands, guarded by lines.mu.
type place struct {
	in         bool // its turn has not come yet
	prev, next *acquisition
}

func (w *waiting) add(a *acquisition) {
	a.place = place{in: true, prev: w.last}
	if w.last != nil {
		w.last.place.next = a
	} else {
		w.first = a
	}
	w.last = a
	w.n++
}

func (w *waiting) remove(a *acquisition) {
	at := a.place
	if at.prev != nil {
		at.prev.place.next = at.next
	} else {
		w.first = at.next
	}
	if at.next != nil {
		at.next.place.prev = at.prev
	} else {
		w.last = at.prev
	}
	a.place = place{}
	w.n--
}

// turn is what a waiter is told: the lock is its own, or the wait has failed, or, if both are nil, it is its turn to ask.
type turn struct {
	lease   *Lease
	blocker map[string]string // of the one who handed the lease on
	err     error
}

// join lines a up. It reports whether a is to ask the lock service now; otherwise a waits for its turn.
func (q *lines) join(a *acquisition) (asks bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.locker.closing.Err() != nil { // whom Close has found in line, it has told
		return false, ErrClosed
	}
	ln := q.of(a.op.Key)
	a.line = ln
	ln.arrivals++
	a.arrival = ln.arrivals
	if ln.contender == nil && ln.holder == nil {
		ln.contender = a
		return true, nil
	}
	a.turn, _ = q.turns.Get().(chan turn)
	if a.turn == nil {
		a.turn = make(chan turn, 1)
	}
	ln.waiting.add(a)
	q.advance(ln)
	return false, nil
}

// of returns the line of a key, which is made if need be.
func (q *lines) of(key string) *line {
	ln := q.byKey[key]
	if ln == nil {
		ln = &line{key: key}
		q.byKey[key] = ln
	}
	return ln
}

// lineUp notes that a is about to stand in the service's line, and gives it the place there of a contender that has left, if
// there is one: it is the process that stands there.
func (q *lines) lineUp(a *acquisition) (ticket int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.counted = true
	ticket, a.line.ticket = a.line.ticket, 0
	return ticket
}

// unseen is how many wait here whom the service's line does not show: it has the contender alone, once that has lined up.
func (q *lines) unseen(key string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.byKey[key]
	if ln == nil {
		return 0
	}
	n := ln.waiting.n
	if ln.contender != nil && !ln.contender.counted {
		n++
	}
	return n
}

// pop takes the first out of the line: from now on it is sure to be sent its turn.
func (ln *line) pop() *acquisition {
	a := ln.waiting.first
	ln.waiting.remove(a)
	return a
}

// advance makes the first in line the contender when there is none and it is time: when nobody in the process holds the
// lock, or the holder will not hand it on. A line that nobody needs is forgotten.
func (q *lines) advance(ln *line) {
	switch {
	case ln.contender != nil:
	case ln.waiting.first == nil:
		if ln.holder == nil && q.byKey[ln.key] == ln {
			delete(q.byKey, ln.key)
		}
	case ln.holder == nil:
		q.promote(ln)
	case q.locker.queue == nil: // to ask would be in vain until it is given back
	default:
		if left := handoverWindow - time.Since(ln.holder.tenure.won); left <= 0 {
			q.promote(ln)
		} else if ln.window == nil {
			ln.window = time.AfterFunc(positive(left), func() { q.windowOver(ln) })
		}
		return
	}
	if ln.window != nil {
		ln.window.Stop()
		ln.window = nil
	}
}

func (q *lines) promote(ln *line) {
	a := ln.pop()
	a.said = ln.said
	a.at = time.Now()
	ln.contender = a
	a.turn <- turn{}
}

func (q *lines) windowOver(ln *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.window = nil
	q.advance(ln)
}

// leave takes a out of the line, and shows it why it has waited. If its turn has come in the same moment, that is returned.
func (q *lines) leave(a *acquisition) (t turn, came bool) {
	q.mu.Lock()
	ln := a.line
	a.said = ln.said
	if ln.holder != nil {
		a.said = q.behind(ln.holder)
	}
	if a.blocked != nil {
		a.blocked = a.aged()
		a.blocked.Waiters += ln.waiting.n
		if a.place.in {
			a.blocked.Waiters--
		}
		if ln.contender != nil && ln.contender != a {
			a.blocked.Waiters++ // whom the service, if it has said anything, has not counted: it was the one that asked
		}
		a.at = time.Now()
	}
	if !a.place.in {
		q.mu.Unlock()
		return <-a.turn, true
	}
	defer q.mu.Unlock()
	ln.waiting.remove(a)
	q.advance(ln)
	return turn{}, false
}

// yield ends the contention of a, which has no lease. If the backend failed it, the next waiter tries.
// If the backend failed two contenders in a row, or refused, all waiters share the error.
func (q *lines) yield(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := a.line
	ln.contender = nil
	ln.ticket = cmp.Or(a.req.Ticket, ln.ticket)
	if ln.waiting.first == nil { // for whoever comes later it would be too good a place
		ln.ticket = 0
	}
	if a.common != nil {
		ln.failures++
		for ln.waiting.first != nil && (ln.failures > 1 || definite(a.common)) {
			ln.pop().turn <- turn{err: a.common}
		}
	}
	q.advance(ln)
}

// heard keeps what the lock service has told the contender, who is about to pause.
func (q *lines) heard(a *acquisition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.line.said = a.said
	if a.failure == nil {
		a.line.failures = 0
	}
	if a.poke == nil {
		a.poke = make(chan struct{}, 1)
	}
	if a.again { // the answer may be older
		a.again = false
		q.poke(a)
	}
}

// poke makes the contender ask again.
func (q *lines) poke(a *acquisition) {
	if a.poke == nil {
		a.again = true
		return
	}
	select {
	case a.poke <- struct{}{}:
	default:
	}
}

// hold notes that the lock service has granted lease to a, which may not have stood in line.
func (q *lines) hold(a *acquisition, lease *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.of(lease.name.Key)
	if ln.contender == a {
		ln.contender = nil
	}
	ln.holder = lease
	ln.said, ln.failures, ln.ticket = said{}, 0, 0
	lease.tenure.pass = ln.arrivals
	q.advance(ln)
}

// gone notes that the lease is over, and that asking the lock service makes sense again. Whoever stands in the service's line is
// called when a lease is released; of a lost one nobody may know.
func (q *lines) gone(lease *Lease, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.byKey[lease.name.Key]
	if ln == nil || ln.holder != lease {
		return
	}
	ln.holder = nil
	ln.said = q.behind(lease)
	if ln.contender != nil && (lost || !ln.contender.called.Load()) {
		q.poke(ln.contender)
	}
	q.advance(ln)
}

// handOver passes the lock on to the first in line, if there is one and fairness to other processes allows it, and
// reports whether it did. The lease has ended on this side; its mu is held, so nothing befalls it meanwhile.
func (q *lines) handOver(le *Lease, at time.Time) bool {
	q.mu.Lock()
	ln := q.byKey[le.name.Key]
	if ln == nil || ln.holder != le || ln.contender != nil || ln.waiting.first == nil || ln.waiting.first.op.TTL != le.ttl ||
		le.tenure.remote && ln.waiting.first.arrival > le.tenure.pass {
		q.mu.Unlock()
		return false
	}
	next := ln.pop()
	lease := le.successor(next, at)
	ln.holder = lease // before anybody can see it lost
	q.mu.Unlock()

	if le.succeed(lease) {
		next.turn <- turn{lease: lease, blocker: le.metadata}
		return true
	}
	q.mu.Lock()
	ln.holder = le
	q.mu.Unlock()
	next.turn <- turn{err: ErrClosed}
	return false
}

// behind is what those are told who wait for a lease of this process.
func (q *lines) behind(lease *Lease) said {
	return said{
		blocked: &BusyError{Holder: q.locker.opts.Holder, Held: time.Since(lease.acquired)},
		at:      time.Now(),
		blocker: lease.metadata,
	}
}

// giveBack notes that the lease is about to be given back to the service. Where that keeps a line, the next contender goes there
// at the same time: whichever of the two requests is first, the lock has lost no time. If others wait there, it is theirs first, and they had
// better not wait for that request, too.
func (q *lines) giveBack(le *Lease) {
	if q.locker.queue == nil || le.tenure.remote {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if ln := q.byKey[le.name.Key]; ln != nil && ln.holder == le && ln.contender == nil && ln.waiting.first != nil {
		q.promote(ln)
	}
}

// close ends the wait of everybody in line. Contenders see for themselves that the Locker was closed.
func (q *lines) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.byKey {
		for ln.waiting.first != nil {
			ln.pop().turn <- turn{err: ErrClosed}
		}
		q.advance(ln)
	}
}
