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
//		case result = <-w.Result(): // a handoff, a failure, or the start as the contender
//		case <-ctx.Done():
//			result, others = w.Leave()
//		}
//	}
//
// A contender calls Answered after each answer of the backend, and asks again at once when AskAgain
// says so. It ends with Granted when the backend grants the lock, and with Yield otherwise. The package
// knows nothing of leases: C is a caller, and O is what a waiter receives.
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
type Queues[C, O any] struct {
	overlap bool

	mu     sync.Mutex
	byKey  map[string]*queue[C, O]
	closed bool
}

// New makes empty queues. If the backend keeps a queue, overlap is true: a contender then asks
// while the process still holds the lock, as soon as a handoff is impossible.
func New[C, O any](overlap bool) *Queues[C, O] {
	return &Queues[C, O]{overlap: overlap, byKey: make(map[string]*queue[C, O])}
}

// queue is the queue of one key, guarded by Queues.mu.
type queue[C, O any] struct {
	all       *Queues[C, O]
	key       string
	waiting   []*Waiter[C, O]
	contender *Waiter[C, O]
	grant     *Grant[C, O]
	arrivals  int
	last      O   // what a contender last reported
	failures  int // of contenders in a row
}

// Waiter is the place of one caller.
type Waiter[C, O any] struct {
	Caller   C
	Waited   bool        // another caller was there before
	Joined   atomic.Bool // the backend's queue counts this contender
	Notified atomic.Bool // the backend notifies this contender of a release

	result   chan O
	askAgain chan struct{}
	queue    *queue[C, O]
	behind   *Grant[C, O] // that of the process when it joined
	arrival  int
}

// Grant is a grant of the backend to this process. It lasts over all handoffs within the process.
type Grant[C, O any] struct {
	queue     *queue[C, O]
	since     time.Time
	contested bool // other processes waited at the time of the grant
	known     int  // arrivals at the time of the grant
	last      O    // what a leaving waiter receives
	timer     *time.Timer
}

// Join adds a caller at the end of the queue. It returns nil after Close.
func (all *Queues[C, O]) Join(key string, caller C) *Waiter[C, O] {
	w := &Waiter[C, O]{Caller: caller, result: make(chan O, 1), askAgain: make(chan struct{}, 1)}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil
	}
	q := all.of(key)
	q.arrivals++
	w.queue, w.arrival, w.behind = q, q.arrivals, q.grant
	q.waiting = append(q.waiting, w)
	q.advance()
	w.Waited = q.contender != w
	return w
}

func (all *Queues[C, O]) of(key string) *queue[C, O] {
	q := all.byKey[key]
	if q == nil {
		q = &queue[C, O]{all: all, key: key}
		all.byKey[key] = q
	}
	return q
}

// advance makes the first waiter the contender if there is no contender and no handoff can come.
// It drops an unused queue.
func (q *queue[C, O]) advance() {
	switch {
	case q.contender != nil:
	case len(q.waiting) == 0:
		var none O
		q.last = none // with a place too good for later callers
		if q.grant == nil {
			delete(q.all.byKey, q.key)
		}
	case q.grant == nil:
		q.promote()
	case !q.all.overlap: // the backend rejects the contender until the process releases the lock
	default:
		g := q.grant
		if left := Window - time.Since(g.since); left <= 0 {
			q.promote()
		} else if g.timer == nil {
			g.timer = time.AfterFunc(max(left, 1), func() {
				q.all.mu.Lock()
				defer q.all.mu.Unlock()
				if q.grant == g {
					q.advance()
				}
			})
		}
	}
}

func (q *queue[C, O]) promote() {
	q.contender = q.pop()
	q.contender.result <- q.last
}

// pop removes the first waiter. Its result follows.
func (q *queue[C, O]) pop() *Waiter[C, O] {
	w := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return w
}

// Result receives the one result of the wait. For a contender that is the last report of the contender
// before it.
func (w *Waiter[C, O]) Result() <-chan O { return w.result }

// AskAgain receives a value when a contender should ask the backend at once.
func (w *Waiter[C, O]) AskAgain() <-chan struct{} { return w.askAgain }

// Leave ends the wait of a waiter that has received no result. If a handoff or a failure came in
// the same moment, Leave returns that result. Otherwise it returns the last report of the
// holder or the contender, and the number of other waiters here.
func (w *Waiter[C, O]) Leave() (o O, others int) {
	q := w.queue
	q.all.mu.Lock()
	switch i := slices.Index(q.waiting, w); {
	case i >= 0:
		q.waiting = slices.Delete(q.waiting, i, i+1)
	case q.contender == w: // it has asked nothing yet
		q.contender = nil
	default:
		q.all.mu.Unlock()
		return <-w.result, 0
	}
	defer q.all.mu.Unlock()
	o, others = q.last, len(q.waiting)
	if q.grant != nil {
		o = q.grant.last
	}
	if q.contender != nil {
		others++
	}
	q.advance()
	return o, others
}

// BehindGrant reports whether the process held the lock when the waiter joined, and still does by the same
// grant.
func (w *Waiter[C, O]) BehindGrant() bool {
	w.queue.all.mu.Lock()
	defer w.queue.all.mu.Unlock()
	return w.behind != nil && w.queue.grant == w.behind
}

// Held reports whether the process holds the lock.
func (all *Queues[C, O]) Held(key string) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.byKey[key]
	return q != nil && q.grant != nil
}

// Behind counts the waiters behind a contender.
func (w *Waiter[C, O]) Behind() int {
	w.queue.all.mu.Lock()
	defer w.queue.all.mu.Unlock()
	return len(w.queue.waiting)
}

// Unseen counts the waiters of a key that the backend's queue does not count.
func (all *Queues[C, O]) Unseen(key string) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.byKey[key]
	if q == nil {
		return 0
	}
	n := len(q.waiting)
	if q.contender != nil && !q.contender.Joined.Load() {
		n++
	}
	return n
}

// Each calls f with the caller of each waiter of a key.
func (all *Queues[C, O]) Each(key string, f func(C)) {
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
func (w *Waiter[C, O]) Answered(report O, failed bool) {
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
func (w *Waiter[C, O]) Yield(failure Failure, result, report O) {
	q := w.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.contender, q.last = nil, report
	if failure != Own {
		q.failures++
	}
	if failure == Shared || failure == Repeated && q.failures > 1 {
		q.fail(result)
	}
	q.advance()
}

func (q *queue[C, O]) fail(result O) {
	for _, w := range q.waiting {
		w.result <- result
	}
	q.waiting = nil
}

// Granted notes a grant of the backend to w, or to a caller outside the queue if w is nil. If
// contested, other processes wait for the lock. A waiter that leaves during the grant receives last.
func (all *Queues[C, O]) Granted(key string, w *Waiter[C, O], contested bool, last O) *Grant[C, O] {
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.of(key)
	if q.contender == w {
		q.contender = nil
	}
	q.grant = &Grant[C, O]{queue: q, since: time.Now(), contested: contested, known: q.arrivals, last: last}
	var none O
	q.last, q.failures = none, 0
	q.advance()
	return q.grant
}

// Next takes the waiter out of the queue to which the holder must hand the lock off, see
// HandOff. If it returns nil, the holder must release the lock in the backend, and the next
// contender may ask at the same time.
//
// ⚑ A handoff needs the first 10 ms of the grant and the consent of accept, a pure function of the
// first waiter. While other processes wait, each waiter that was there at the grant is handed the
// lock at most once, and no contender delays these processes.
func (g *Grant[C, O]) Next(at time.Time, accept func(C) bool) *Waiter[C, O] {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.grant != g || q.contender != nil || len(q.waiting) == 0 {
		return nil
	}
	first := q.waiting[0]
	switch known := first.arrival <= g.known; {
	case at.Sub(g.since) < Window && (known || !g.contested) && accept(first.Caller):
		return q.pop()
	case q.all.overlap && !g.contested:
		q.promote()
	}
	return nil
}

// Wanted reports whether Next may return a waiter: one waits, and no contender asks the backend.
func (g *Grant[C, O]) Wanted() bool {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.contender == nil && len(q.waiting) > 0
}

// HandOff gives a waiter that Next returned its result. A waiter that leaves from now on
// receives last.
func (g *Grant[C, O]) HandOff(w *Waiter[C, O], result, last O) {
	g.queue.all.mu.Lock()
	defer g.queue.all.mu.Unlock()
	g.last = last
	w.result <- result
}

// End notes that the process holds the lock no more. A contender that the backend does not notify
// is woken: any contender if the lock was lost, because the backend may know nothing of a loss.
func (g *Grant[C, O]) End(lost bool) {
	q := g.queue
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
	}
	if q.grant != g {
		return // the backend has granted the lock again
	}
	q.grant, q.last = nil, g.last
	if c := q.contender; c != nil && (lost || !c.Notified.Load()) {
		select {
		case c.askAgain <- struct{}{}:
		default: // it is about to ask
		}
	}
	q.advance()
}

// Close gives every waiter its result, and later callers are refused. Contenders end by
// themselves.
func (all *Queues[C, O]) Close(result O) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
	for _, q := range all.byKey {
		q.fail(result)
		q.advance()
	}
}
