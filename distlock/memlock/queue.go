package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// waiter is one who stands in line.
type waiter struct {
	ticket int64
	alive  time.Time // until then, unless it asks again
	req    driver.AcquireRequest
}

// before reports whether w comes before the one who asks.
func (w *waiter) before(req driver.AcquireRequest) bool {
	return w.req.Owner != req.Owner && (req.Ticket == 0 || w.ticket < req.Ticket)
}

// enter puts the one who asks in line, or keeps it there.
func (l *lock) enter(req driver.AcquireRequest, now time.Time) (ticket int64, full bool) {
	alive := now.Add(req.Alive)
	for _, w := range l.line {
		if w.req.Owner == req.Owner {
			if alive.After(w.alive) {
				w.alive = alive
			}
			w.req = req
			return w.ticket, false
		}
	}
	if len(l.line) >= driver.MaxLine {
		l.line = slices.DeleteFunc(l.line, func(w *waiter) bool { return !now.Before(w.alive) })
	}
	if len(l.line) >= driver.MaxLine {
		return 0, true
	}
	if ticket = req.Ticket; ticket == 0 {
		l.tickets++
		ticket = l.tickets
	}
	at, _ := slices.BinarySearchFunc(l.line, ticket, func(w *waiter, t int64) int { return int(w.ticket - t) })
	l.line = slices.Insert(l.line, at, &waiter{ticket: ticket, alive: alive, req: req})
	return ticket, false
}

func (l *lock) leave(owner string) {
	l.line = slices.DeleteFunc(l.line, func(w *waiter) bool { return w.req.Owner == owner })
}

// first is the first in line that is alive; those before it are dropped.
func (l *lock) first(now time.Time) *waiter {
	for len(l.line) > 0 && !now.Before(l.line[0].alive) {
		l.line = l.line[1:]
	}
	if len(l.line) == 0 {
		return nil
	}
	return l.line[0]
}

// handOver gives a lock that is free to the first in line, and tells it.
func (t *table) handOver(l *lock, now time.Time) {
	w := l.first(now)
	if w == nil {
		return
	}
	req := w.req
	req.TTL = max(w.alive.Sub(now), driver.MinHandover)
	req.FenceFloor = 0
	grant := t.take(l, req, now)
	t.wake(req.Owner, driver.Wake{Grant: grant, Seq: req.Seq, TTL: req.TTL})
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

// Listen implements driver.Listener. Wakes are sure to come at once.
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
