package distlock

import (
	"container/heap"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// expiries enforces the deadlines of a Locker's leases with one timer. A timer for each lease would make the runtime tidy up,
// and wake up a thread, every few leases, which takes longer than the rest of a Locker's work.
//
// A renewal does not move a lease's place: when the old deadline comes, the lease is put back with the new one.
//
// Lock order: a lease's mu may be held when expiries' mu is taken, never the other way round.
type expiries struct {
	mu    sync.Mutex
	next  expiryHeap
	timer *time.Timer
	at    trust.Moment // when the timer fires, if it is set
	set   bool
}

// expiry is a lease's place, guarded by expiries.mu.
type expiry struct {
	at    trust.Moment // no later than the deadline
	place int          // index in the heap + 1; 0: not in it
}

// watch has the lease looked at when its deadline has come.
func (x *expiries) watch(le *Lease, deadline trust.Moment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watchLocked(le, deadline)
}

func (x *expiries) watchLocked(le *Lease, deadline trust.Moment) {
	switch {
	case le.expiry.place == 0:
		le.expiry.at = deadline
		heap.Push(&x.next, le)
	case deadline.Before(le.expiry.at):
		le.expiry.at = deadline
		heap.Fix(&x.next, le.expiry.place-1)
	}
	x.arm()
}

// arm sees to it that the timer fires by the first deadline. It may do so before: to set it later would cost more.
func (x *expiries) arm() {
	if len(x.next) == 0 || x.set && !x.next[0].expiry.at.Before(x.at) {
		return
	}
	x.set, x.at = true, x.next[0].expiry.at
	if x.timer == nil {
		x.timer = time.AfterFunc(positive(trust.Until(x.at)), x.fire)
	} else {
		x.timer.Reset(positive(trust.Until(x.at)))
	}
}

// forget ends the watch.
func (x *expiries) forget(le *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if le.expiry.place > 0 {
		heap.Remove(&x.next, le.expiry.place-1)
	}
}

// replace puts a lease in the place of another, whose tenure it goes on with.
func (x *expiries) replace(le, next *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if le.expiry.place == 0 { // it is being looked at just now
		x.watchLocked(next, next.trust.Deadline())
		return
	}
	next.expiry = le.expiry
	x.next[le.expiry.place-1] = next
	le.expiry.place = 0
}

// fire looks at the leases whose deadlines may have come.
func (x *expiries) fire() {
	x.mu.Lock()
	x.set = false
	if len(x.next) == 0 { // a closed Locker reads no clock
		x.mu.Unlock()
		return
	}
	at := trust.Now()
	var due []*Lease
	for len(x.next) > 0 && !at.Before(x.next[0].expiry.at) {
		due = append(due, heap.Pop(&x.next).(*Lease))
	}
	x.arm()
	x.mu.Unlock()
	for _, le := range due {
		le.expire()
	}
}

// stop frees the timer of a Locker that has no lease left.
func (x *expiries) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.timer != nil {
		x.timer.Stop()
	}
}

// expiryHeap is a heap of leases by deadline.
type expiryHeap []*Lease

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].expiry.at.Before(h[j].expiry.at) }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].expiry.place, h[j].expiry.place = i+1, j+1
}
func (h *expiryHeap) Push(v any) {
	le := v.(*Lease)
	*h = append(*h, le)
	le.expiry.place = len(*h)
}
func (h *expiryHeap) Pop() any {
	old := *h
	le := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	le.expiry.place = 0
	return le
}
