// Package queue keeps the callers of one process that want the same lock in the order of their
// arrival.
//
// At most one waiter of a key, the contender, asks the backend. The other waiters poll nothing: a
// holder in the process hands the lock off to the first waiter, or the first waiter becomes the
// contender.
//
//	w := queues.Join(key, caller)
//	if w.Waited {
//		select {
//		case result = <-w.Result(): // a handoff or a failure
//		case last = <-w.Ask(): // it is the contender
//		case <-ctx.Done():
//			result, last = w.Leave()
//		}
//	}
//
// A contender calls Answered after each answer of the backend, and asks again at once when Ask says
// so. It ends with Granted when the backend grants the lock, and with Yield otherwise. The package
// knows nothing of leases: C is a caller, O is the outcome of a wait, and R is a report on the lock.
package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Window is how long after a grant of the backend the lock may be handed off within the process. It
// bounds how long waiters of other processes are overtaken, and how much of the TTL a new holder
// lacks.
const Window = 10 * time.Millisecond

// Queues holds one queue for each key that the process holds or wants. It is safe for concurrent
// use.
type Queues[C, O, R any] struct {
	overlap bool

	mu    sync.Mutex
	byKey map[string]*queue[C, O, R]
}

// New makes empty queues. If the backend keeps a queue, overlap is true: a contender then asks
// while the process still holds the lock, as soon as a handoff is impossible.
func New[C, O, R any](overlap bool) *Queues[C, O, R] {
	return &Queues[C, O, R]{overlap: overlap, byKey: make(map[string]*queue[C, O, R])}
}

// queue is the queue of one key, guarded by Queues.mu.
type queue[C, O, R any] struct {
	all       *Queues[C, O, R]
	key       string
	waiting   []*Waiter[C, O, R]
	contender *Waiter[C, O, R]
	grant     *Grant[C, O, R]
	arrivals  int
	last      R   // what the holder or a contender last reported
	failures  int // of contenders in a row
}

// Waiter is the place of one caller.
type Waiter[C, O, R any] struct {
	Caller   C
	Waited   bool        // another caller was there before
	Notified atomic.Bool // the backend notifies this contender of a release

	result  chan O // of one that has waited
	ask     chan R
	queue   *queue[C, O, R]
	arrival int
}

// Grant is a grant of the backend to this process. It lasts over all handoffs within the process.
type Grant[C, O, R any] struct {
	queue     *queue[C, O, R]
	since     time.Time
	contested bool // other processes waited at the time of the grant
	known     int  // arrivals at the time of the grant
	last      R    // what a leaving waiter receives
	timer     *time.Timer
}

// Join adds a caller at the end of the queue.
func (all *Queues[C, O, R]) Join(key string, caller C) *Waiter[C, O, R] {
	w := &Waiter[C, O, R]{Caller: caller, ask: make(chan R, 1)}
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.of(key)
	q.arrivals++
	w.queue, w.arrival = q, q.arrivals
	if q.contender == nil && q.grant == nil && len(q.waiting) == 0 {
		q.contender = w
		return w
	}
	w.Waited, w.result = true, make(chan O, 1)
	q.waiting = append(q.waiting, w)
	q.advance()
	return w
}

func (all *Queues[C, O, R]) of(key string) *queue[C, O, R] {
	q := all.byKey[key]
	if q == nil {
		q = &queue[C, O, R]{all: all, key: key}
		all.byKey[key] = q
	}
	return q
}

// advance makes the first waiter the contender if there is no contender and no handoff can come.
// It drops an unused queue.
func (q *queue[C, O, R]) advance() {
	switch {
	case q.contender != nil:
	case len(q.waiting) == 0:
		if q.grant == nil {
			delete(q.all.byKey, q.key)
		} else {
			q.last = q.grant.last // that of a contender has a place too good for later callers
		}
	case q.grant == nil || q.all.overlap && time.Since(q.grant.since) >= Window:
		q.promote()
	case q.all.overlap && q.grant.timer == nil: // otherwise the backend rejects a contender until the release
		g := q.grant
		g.timer = time.AfterFunc(max(time.Until(g.since.Add(Window)), 1), func() {
			q.all.mu.Lock()
			defer q.all.mu.Unlock()
			if q.grant == g {
				q.advance()
			}
		})
	}
}

func (q *queue[C, O, R]) promote() {
	q.contender = q.pop()
	q.contender.ask <- q.last
}

// pop removes the first waiter. Its result follows.
func (q *queue[C, O, R]) pop() *Waiter[C, O, R] {
	w := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return w
}

// Result receives the result of the wait of a waiter that does not become the contender.
func (w *Waiter[C, O, R]) Result() <-chan O { return w.result }

// Ask receives the last report of the contender before it when a waiter has become the contender. Later it
// receives a value when the contender should ask the backend at once.
func (w *Waiter[C, O, R]) Ask() <-chan R { return w.ask }

// Leave ends the wait of a waiter that has received nothing. If a handoff or a failure came in the same
// moment, Leave returns that result. Otherwise it returns the last report of the holder or the contender.
func (w *Waiter[C, O, R]) Leave() (result O, last R) {
	q := w.queue
	q.all.mu.Lock()
	switch i := slices.Index(q.waiting, w); {
	case i >= 0:
		q.waiting = slices.Delete(q.waiting, i, i+1)
	case q.contender == w: // it has asked nothing yet
		q.contender = nil
	default:
		q.all.mu.Unlock()
		return <-w.result, last
	}
	defer q.all.mu.Unlock()
	if last = q.last; q.grant != nil {
		last = q.grant.last
	}
	q.advance()
	return result, last
}

// Held returns since when the process holds the lock, zero if it does not, and how many waiters are not the
// contender.
func (all *Queues[C, O, R]) Held(key string) (since time.Time, waiting int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if q := all.byKey[key]; q != nil {
		waiting = len(q.waiting)
		if q.grant != nil {
			since = q.grant.since
		}
	}
	return since, waiting
}

// Each calls f with the caller of each waiter of a key.
func (all *Queues[C, O, R]) Each(key string, f func(C)) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if q := all.byKey[key]; q != nil {
		if q.contender != nil {
			f(q.contender.Caller)
		}
		for _, w := range q.waiting {
			f(w.Caller)
		}
	}
}

// Answered keeps the report of a contender that goes on, for the next contender and for leaving
// waiters.
func (w *Waiter[C, O, R]) Answered(report R, failed bool) {
	w.queue.all.mu.Lock()
	defer w.queue.all.mu.Unlock()
	w.queue.last = report
	if !failed {
		w.queue.failures = 0
	}
}

// Failure says which waiters the failure of a contender concerns.
type Failure int

const (
	Own      Failure = iota // the contender alone, whose wait is over
	Repeated                // all waiters, if it is the second in a row: the backend is silent
	Shared                  // all waiters: the backend rejects every request
)

// Yield ends a contender without a grant, and keeps its last report for the next. If the failure
// concerns the other waiters, they all receive result. Otherwise the first waiter becomes the
// contender.
func (w *Waiter[C, O, R]) Yield(failure Failure, result O, report R) {
	q := w.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.contender, q.last = nil, report
	if failure != Own {
		q.failures++
	}
	if failure == Shared || failure == Repeated && q.failures > 1 {
		for _, other := range q.waiting {
			other.result <- result
		}
		q.waiting = nil
	}
	q.advance()
}

// Granted notes a grant of the backend at a moment to w, or to a caller outside the queue if w is nil. If
// contested, other processes wait for the lock. A waiter that leaves during the grant receives last.
func (all *Queues[C, O, R]) Granted(key string, w *Waiter[C, O, R], at time.Time, contested bool, last R,
) *Grant[C, O, R] {
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.of(key)
	if q.contender == w {
		q.contender = nil
	}
	q.grant = &Grant[C, O, R]{queue: q, since: at, contested: contested, known: q.arrivals, last: last}
	q.last, q.failures = last, 0
	q.advance()
	return q.grant
}

// Next takes the waiter out of the queue to which the holder must hand the lock off, see
// HandOff. If it returns nil, the holder must release the lock in the backend, and the next
// contender may ask at the same time.
//
// ⚑ A handoff needs the first 10 ms of the grant and the consent of accept, a pure function of the first
// waiter and the age of the grant. While other processes wait, each waiter that was there at the grant is
// handed the lock at most once, and no contender delays these processes.
func (g *Grant[C, O, R]) Next(at time.Time, accept func(waiter C, age time.Duration) bool) *Waiter[C, O, R] {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.grant != g || q.contender != nil || len(q.waiting) == 0 {
		return nil
	}
	first, age := q.waiting[0], at.Sub(g.since)
	switch known := first.arrival <= g.known; {
	case age < Window && (known || !g.contested) && accept(first.Caller, age):
		return q.pop()
	case q.all.overlap && !g.contested:
		q.promote()
	}
	return nil
}

// Wanted reports whether Next may return a waiter: one waits, and no contender asks the backend.
func (g *Grant[C, O, R]) Wanted() bool {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.contender == nil && len(q.waiting) > 0
}

// HandOff gives a waiter that Next returned its result. A waiter that leaves from now on
// receives last.
func (g *Grant[C, O, R]) HandOff(w *Waiter[C, O, R], result O, last R) {
	g.queue.all.mu.Lock()
	defer g.queue.all.mu.Unlock()
	g.last, g.queue.last = last, last
	w.result <- result
}

// End notes that the process holds the lock no more. A contender that the backend does not notify
// is woken: any contender if the lock was lost, because the backend may know nothing of a loss.
func (g *Grant[C, O, R]) End(lost bool) {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	if q.grant != g {
		return // the backend has granted the lock again
	}
	q.grant = nil
	if lost || q.contender == nil || !q.contender.Notified.Load() {
		q.askNow()
	}
	q.advance()
}

// AskNow has the contender of a key, if there is one, ask the backend once more.
func (all *Queues[C, O, R]) AskNow(key string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if q := all.byKey[key]; q != nil {
		q.askNow()
	}
}

func (q *queue[C, O, R]) askNow() {
	if q.contender != nil {
		select {
		case q.contender.ask <- q.last:
		default: // it is about to ask
		}
	}
}
