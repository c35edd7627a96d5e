package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// List implements driver.Lister. Pages are in the order of the keys.
func (t *table) List(ctx context.Context, req driver.ListRequest) (reply driver.ListReply, err error) {
	if err := ended(ctx); err != nil {
		return reply, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
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
}

func (l *lock) listed(name driver.Name, waiters int, now time.Time) driver.Listed {
	listed := driver.Listed{Name: name, State: driver.State{Waiters: len(l.line)}}
	if l.heldAt(now) {
		listed.State = l.state(now)
	}
	for _, w := range l.line {
		if alive := w.alive.Sub(now); alive > 0 && len(listed.Queue) < waiters {
			listed.Queue = append(listed.Queue, driver.Waiter{Holder: w.req.Holder, Ticket: w.ticket, Alive: alive})
		}
	}
	return listed
}

// Break implements driver.Breaker.
func (t *table) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	if err := ended(ctx); err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	l := t.locks[name]
	if !l.heldAt(now) || fence < l.fence || fence > l.last {
		return false, nil
	}
	t.release(l, now)
	return true, nil
}
