package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// waiter is an owner in the queue.
type waiter struct {
	ticket int64
	alive  time.Time // the end of its promise
	req    driver.AcquireRequest
}

// enter puts the request's owner into the queue, or keeps it there.
func (l *lock) enter(req driver.AcquireRequest, now time.Time) (ticket int64, outcome driver.Outcome) {
	alive := now.Add(req.Alive)
	for _, w := range l.queue {
		if w.req.Owner == req.Owner {
			if alive.After(w.alive) {
				w.alive = alive
			}
			w.req = req
			return w.ticket, driver.Busy
		}
	}
	if len(l.queue) >= driver.MaxQueue {
		l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool { return !now.Before(w.alive) })
	}
	if len(l.queue) >= driver.MaxQueue {
		return 0, driver.Full
	}
	if ticket = req.Ticket; ticket == 0 {
		l.tickets++
		ticket = l.tickets
	}
	at, _ := slices.BinarySearchFunc(l.queue, ticket, func(w *waiter, t int64) int { return int(w.ticket - t) })
	l.queue = slices.Insert(l.queue, at, &waiter{ticket: ticket, alive: alive, req: req})
	return ticket, driver.Busy
}

func (l *lock) leave(owner string) {
	l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool { return w.req.Owner == owner })
}

// first is the first waiter whose promise has not ended. The waiters before it are dropped.
func (l *lock) first(now time.Time) *waiter {
	for len(l.queue) > 0 && !now.Before(l.queue[0].alive) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// waitsBefore reports whether the first waiter comes before the request.
func (l *lock) waitsBefore(req driver.AcquireRequest, now time.Time) bool {
	w := l.first(now)
	return w != nil && w.req.Owner != req.Owner && (req.Ticket == 0 || w.ticket < req.Ticket)
}

// handOff gives a free lock to the first waiter, and notifies it.
func (t *table) handOff(l *lock, now time.Time) {
	w := l.first(now)
	if w == nil {
		return
	}
	req := w.req
	req.TTL = max(w.alive.Sub(now), driver.MinHandoff)
	l.mint(t.clock(now), 0)
	t.wake(req.Owner, driver.Wake{Grant: t.hold(l, req, now), Seq: req.Seq, TTL: req.TTL})
}

// Listen implements driver.Listener.
func (t *table) Listen(_ context.Context, _ driver.Name, owner string) (<-chan driver.Wake, func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wakes := make(chan driver.Wake, 1)
	t.wakes[owner] = wakes
	return wakes, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.wakes, owner)
	}, nil
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
