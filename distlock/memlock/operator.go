package memlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// List implements driver.Lister. One page has all names, in the order of the keys.
func (t *table) List(ctx context.Context, req driver.ListRequest) (driver.ListReply, error) {
	return call(ctx, t, func(now time.Duration) (reply driver.ListReply, err error) {
		for name, r := range t.records {
			if r.expire(now); !r.held && len(r.queue) == 0 {
				continue
			}
			if name.Namespace == req.Namespace && (req.Key == "" || name.Key == req.Key) {
				reply.Names = append(reply.Names, r.listed(name, req.Waiters, now))
			}
		}
		slices.SortFunc(reply.Names, func(a, b driver.Listed) int { return cmp.Compare(a.Name.Key, b.Name.Key) })
		return reply, nil
	})
}

func (r *record) listed(name driver.Name, waiters int, now time.Duration) driver.Listed {
	listed := driver.Listed{Name: name, State: r.state(now)}
	listed.State.Waiters = len(r.queue)
	for _, w := range r.queue[:min(waiters, len(r.queue))] {
		listed.Queue = append(listed.Queue, driver.Waiter{
			Holder: w.req.Holder, Metadata: maps.Clone(w.req.Metadata), Ticket: w.ticket, Alive: w.alive - now,
		})
	}
	return listed
}

// Break implements driver.Breaker.
func (t *table) Break(ctx context.Context, name driver.Name, fence int64) (bool, error) {
	return call(ctx, t, func(now time.Duration) (bool, error) {
		r := t.record(name, now)
		if !r.heldUnder(fence) {
			return false, nil
		}
		r.release()
		t.handOff(r, now)
		return true, nil
	})
}
