// Package memlock keeps locks in the memory of one process.
//
// It gives what every backend gives, fencing tokens and expiry included, between the goroutines of
// one process. It is for programs that run as a single instance, and for tests: under
// testing/synctest its TTLs follow the bubble's clock. Two drivers share nothing, even in one
// process.
//
// It is also the template of a backend: it implements all of package driver. Read table and its
// methods first, then the record of a name in record.go.
package memlock

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// New makes a Locker whose locks live in this process. Nil opts mean the defaults. Options out of
// range fail with distlock.ErrInvalidOption.
func New(opts *distlock.Options) (*distlock.Locker, error) {
	return distlock.New(NewDriver(), opts)
}

// NewDriver makes an empty lock table.
func NewDriver() driver.Driver {
	return &table{
		began:   time.Now(),
		records: make(map[driver.Name]*record),
		wakes:   make(map[string]chan driver.Wake),
		asks:    make(map[*func(owner string)]bool),
	}
}

// table is the backend: one record per name, under one mutex.
type table struct {
	began time.Time

	mu      sync.Mutex
	records map[driver.Name]*record
	sweepAt int                         // the number of records at which the next sweep is due
	wakes   map[string]chan driver.Wake // by owner
	asks    map[*func(owner string)]bool
}

// withLock runs f under the mutex.
func (t *table) withLock(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *table) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "memory", Queues: true}
}

// call runs f alone, at one moment: the time since the Unix epoch. A call whose context has ended has
// no effect.
//
// The clock begins as the wall clock, and never steps back. So a token that follows this clock is above
// all tokens of a removed record.
func call[R any](ctx context.Context, t *table, f func(now time.Duration) (R, error)) (reply R, err error) {
	if err := ctx.Err(); err != nil {
		return reply, fmt.Errorf("memlock: %w: %w", driver.ErrNotDone, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return f(time.Duration(t.began.UnixNano()) + time.Since(t.began))
}

// record returns the record of a name, without its expired parts.
func (t *table) record(name driver.Name, now time.Duration) *record {
	r := t.records[name]
	if r == nil {
		t.sweep(now)
		r = &record{tombstones: make(map[string]time.Duration)}
		t.records[name] = r
	}
	r.expire(now)
	return r
}

// sweep removes the records without meaning, each time their number has doubled: memory stays
// proportional to the names in use.
func (t *table) sweep(now time.Duration) {
	if len(t.records) < max(t.sweepAt, 1024) {
		return
	}
	maps.DeleteFunc(t.records, func(_ driver.Name, r *record) bool {
		r.expire(now)
		return !r.held && len(r.tombstones) == 0 && len(r.queue) == 0 && r.last < now.Microseconds()
	})
	t.sweepAt = 2 * len(t.records)
}

// Acquire implements driver.Driver. docs/design/driver.md lists its cases.
func (t *table) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return call(ctx, t, func(now time.Duration) (driver.AcquireReply, error) {
		r := t.record(req.Name, now)
		mine := r.req.Owner == req.Owner
		switch {
		case r.isCancelled(req.Owner), mine && !r.held:
			return driver.AcquireReply{Outcome: driver.Cancelled}, nil
		case r.held && !mine, !r.held && r.waitsBefore(req):
			t.handOff(r, now)
			return r.busy(req, now), nil
		case r.held:
			r.expires = max(r.expires, now+req.TTL) // a copy shortens nothing
			return r.granted(), nil
		default:
			return r.hold(req, now), nil
		}
	})
}

func (t *table) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return call(ctx, t, func(now time.Duration) (reply driver.RaiseReply, err error) {
		r := t.record(req.Name, now)
		switch {
		case req.Floor > (now + driver.FloorAhead).Microseconds():
			return reply, fmt.Errorf("memlock: %w", driver.ErrFloor) // a damaged mark asks for it
		case !r.heldBy(req.Owner):
			return reply, nil
		case req.Floor > r.fence:
			r.mint(req.Floor, now)
		}
		return driver.RaiseReply{Held: true, Fence: r.fence, FenceEnd: r.last}, nil
	})
}

func (t *table) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	for i, req := range reqs {
		replies[i], replies[i].Err = call(ctx, t, func(now time.Duration) (reply driver.ExtendReply, err error) {
			r := t.record(req.Name, now)
			if !r.heldBy(req.Owner) {
				return reply, nil
			}
			r.expires = max(r.expires, now+req.TTL)
			return driver.ExtendReply{Held: true, Asked: r.asked != 0}, nil
		})
	}
	return replies
}

func (t *table) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return call(ctx, t, func(now time.Duration) (driver.ReleaseReply, error) {
		r := t.record(req.Name, now)
		if req.Tombstone > 0 {
			r.tombstones[req.Owner] = max(r.tombstones[req.Owner], now+req.Tombstone)
		}
		if req.Leave {
			r.leave(req.Owner)
		}
		if r.heldBy(req.Owner) {
			r.release()
		}
		t.handOff(r, now)
		return driver.ReleaseReply{Released: r.released == req.Owner}, nil
	})
}

// handOff gives a free name to its first waiter, and notifies the waiter.
func (t *table) handOff(r *record, now time.Duration) {
	if r.held || len(r.queue) == 0 {
		return
	}
	first := r.queue[0]
	req := first.req
	req.TTL = max(first.alive-now, driver.MinHandoff)
	t.wake(req.Owner, driver.Wake{Grant: r.hold(req, now), Seq: req.Seq, TTL: req.TTL})
}

func (t *table) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return call(ctx, t, func(now time.Duration) (driver.State, error) {
		return t.record(name, now).state(now), nil
	})
}

func (t *table) Close() error { return nil }
