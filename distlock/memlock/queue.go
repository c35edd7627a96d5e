package memlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// waiter is an owner in the queue.
type waiter struct {
	ticket int64
	alive  time.Duration // the end of its promise
	req    driver.AcquireRequest
}

// enter puts the request's owner into the queue, or keeps it there.
func (r *record) enter(req driver.AcquireRequest, now time.Duration) (ticket int64, outcome driver.Outcome) {
	for _, w := range r.queue {
		if w.req.Owner == req.Owner {
			w.alive, w.req = max(w.alive, now+req.Alive), req
			return w.ticket, driver.Busy
		}
	}
	if len(r.queue) >= driver.MaxQueue {
		return 0, driver.Full
	}
	if ticket = req.Ticket; ticket == 0 {
		r.tickets++
		ticket = r.tickets
	}
	r.queue = append(r.queue, &waiter{ticket: ticket, alive: now + req.Alive, req: req})
	slices.SortFunc(r.queue, func(a, b *waiter) int { return cmp.Compare(a.ticket, b.ticket) })
	return ticket, driver.Busy
}

func (r *record) leave(owner string) {
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter) bool { return w.req.Owner == owner })
}

// waitsBefore reports whether the first waiter comes before the request.
func (r *record) waitsBefore(req driver.AcquireRequest) bool {
	if len(r.queue) == 0 {
		return false
	}
	first := r.queue[0]
	return first.req.Owner != req.Owner && (req.Ticket == 0 || first.ticket < req.Ticket)
}

// Listen implements driver.Listener.
func (t *table) Listen(_ context.Context, _ driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	wakes := make(chan driver.Wake, 1)
	t.withLock(func() { t.wakes[owner] = wakes })
	return wakes, func() { t.withLock(func() { delete(t.wakes, owner) }) }, nil
}

// wake notifies the owner if it listens. It replaces a wake that was not received.
func (t *table) wake(owner string, wake driver.Wake) {
	if wakes := t.wakes[owner]; wakes != nil {
		select {
		case <-wakes:
		default:
		}
		wakes <- wake
	}
}
