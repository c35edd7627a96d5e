package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// List implements driver.Lister. Pages are in the order of the keys.
func (t *table) List(ctx context.Context, req driver.ListRequest) (driver.ListReply, error) {
	return call(ctx, t, func(now time.Time) (reply driver.ListReply, err error) {
		var keys []string
		for name, l := range t.locks {
			if name.Namespace == req.Namespace && name.Key > req.After && (l.heldAt(now) || l.first(now) != nil) {
				keys = append(keys, name.Key)
			}
		}
		slices.Sort(keys)
		if len(keys) > req.Limit {
			keys = keys[:req.Limit]
			reply.Next = keys[req.Limit-1]
		}
		for _, key := range keys {
			name := driver.Name{Namespace: req.Namespace, Key: key}
			reply.Names = append(reply.Names, t.locks[name].listed(name, req.Waiters, now))
		}
		return reply, nil
	})
}

func (l *lock) listed(name driver.Name, waiters int, now time.Time) driver.Listed {
	listed := driver.Listed{Name: name, State: l.state(now)}
	listed.State.Waiters = len(l.queue)
	for _, w := range l.queue {
		if alive := w.alive.Sub(now); alive > 0 && len(listed.Queue) < waiters {
			listed.Queue = append(listed.Queue, driver.Waiter{Holder: w.req.Holder, Ticket: w.ticket, Alive: alive})
		}
	}
	return listed
}

// heldUnder returns the lock if the token is one of its present grant, or nil.
func (t *table) heldUnder(name driver.Name, fence int64, now time.Time) *lock {
	l := t.locks[name]
	if !l.heldAt(now) || fence < l.fence || fence > l.last {
		return nil
	}
	return l
}

// Break implements driver.Breaker.
func (t *table) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	return call(ctx, t, func(now time.Time) (bool, error) {
		l := t.heldUnder(name, fence, now)
		if l == nil {
			return false, nil
		}
		for lost := range t.lost {
			(*lost)(name, l.owner)
		}
		l.release()
		t.handOff(l, now)
		return true, nil
	})
}

// NotifyLosses implements driver.LossNotifier: a broken grant is lost.
func (t *table) NotifyLosses(lost func(driver.Name, string)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost[&lost] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.lost, &lost)
	}
}

// AskToEnd implements driver.Interrupter.
func (t *table) AskToEnd(ctx context.Context, name driver.Name, fence int64, within time.Duration) (bool, error) {
	return call(ctx, t, func(now time.Time) (bool, error) {
		l := t.heldUnder(name, fence, now)
		if l == nil {
			return false, nil
		}
		if end := now.Add(within); l.end.IsZero() || end.Before(l.end) {
			l.end = end
			t.wake(l.owner, driver.Wake{End: l.endRequest(now)})
		}
		return true, nil
	})
}

func (l *lock) endRequest(now time.Time) driver.EndRequest {
	if l.end.IsZero() {
		return driver.EndRequest{}
	}
	return driver.EndRequest{Asked: true, Left: l.end.Sub(now)}
}
