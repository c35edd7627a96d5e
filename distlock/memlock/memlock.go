// Package memlock keeps locks in the memory of one process.
//
// It gives what every backend gives, fencing tokens and expiry included, between the goroutines of
// one process. It is for programs that run as a single instance, and for tests: under
// testing/synctest its TTLs follow the bubble's clock. Two drivers share nothing, even in one
// process.
//
// It is also the template of a backend: it implements all of package driver.
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
		epoch: time.Now(),
		locks: make(map[driver.Name]*lock),
		wakes: make(map[string]chan driver.Wake),
		lost:  make(map[*func(driver.Name, string)]bool),
	}
}

// table is the backend: all locks, under one mutex.
type table struct {
	epoch time.Time

	mu    sync.Mutex
	locks map[driver.Name]*lock
	sweep int                         // entries at which the next sweep is due
	wakes map[string]chan driver.Wake // by owner
	lost  map[*func(driver.Name, string)]bool
}

// lock is the state of one name.
type lock struct {
	owner    string // of the last grant; empty after its release
	expires  time.Time
	since    time.Time
	end      time.Time // until when the holder is asked to end; zero: it is not asked
	holder   string
	metadata map[string]string

	fence      int64
	last       int64                // the highest token that was ever reserved
	released   string               // the last owner that was released
	tombstones map[string]time.Time // by owner, until when

	queue   []*waiter // by ticket
	tickets int64     // given out
}

func (t *table) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "memory", Queues: true, FenceBlock: driver.FenceBlock, Exact: true}
}

// call runs f alone, at one moment of the table's clock. A call whose context has ended has no
// effect.
func call[R any](ctx context.Context, t *table, f func(now time.Time) (R, error)) (reply R, err error) {
	if err := ctx.Err(); err != nil {
		return reply, fmt.Errorf("memlock: %w: %w", driver.ErrNotDone, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return f(time.Now())
}

func (t *table) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	return call(ctx, t, func(now time.Time) (reply driver.AcquireReply, err error) {
		if err := t.checkFloor(max(req.FenceFloor, req.Fence), now); err != nil {
			return reply, err
		}
		l := t.lock(req.Name)
		switch mine := l.owner == req.Owner; {
		case l.cancelled(req.Owner, now):
			return driver.AcquireReply{Outcome: driver.Cancelled, Last: l.last, Clock: t.clock(now)}, nil
		case req.Fence > 0:
			return t.acquireExactly(l, req, now), nil
		case mine && !l.heldAt(now):
			return driver.AcquireReply{Outcome: driver.Cancelled}, nil
		case mine:
			l.prolong(req.TTL, now)
			return l.grant(), nil
		case !l.heldAt(now) && !l.waitsBefore(req, now):
			l.mint(t.clock(now), req.FenceFloor)
			return t.hold(l, req, now), nil
		}
		reply = t.busy(l, now)
		if req.Alive > 0 {
			reply.Ticket, reply.Outcome = l.enter(req, now)
			reply.State.Waiters = len(l.queue)
		}
		return reply, nil
	})
}

// lock returns the lock of the name. A new one is not in the table yet, see put.
func (t *table) lock(name driver.Name) *lock {
	if l := t.locks[name]; l != nil {
		return l
	}
	return &lock{tombstones: make(map[string]time.Time)}
}

// cancelled reports whether the owner was released, or has a tombstone.
func (l *lock) cancelled(owner string, now time.Time) bool {
	return l.released == owner || now.Before(l.tombstones[owner])
}

// busy refuses a request. A free name goes to its first waiter.
func (t *table) busy(l *lock, now time.Time) driver.AcquireReply {
	if !l.heldAt(now) {
		t.handOff(l, now)
	}
	return driver.AcquireReply{Outcome: driver.Busy, State: l.state(now)}
}

// checkFloor refuses tokens that only a damaged mark can ask for.
func (t *table) checkFloor(floor int64, now time.Time) error {
	if floor > t.clock(now)+driver.FloorAhead.Microseconds() {
		return fmt.Errorf("memlock: %w", driver.ErrFloor)
	}
	return nil
}

// mint reserves the tokens of a grant.
func (l *lock) mint(clock, floor int64) {
	l.fence = max(l.last+1, clock, floor)
	l.last = max(l.fence, clock+driver.FenceBlock)
}

// hold makes the request's owner the holder, under the tokens that were reserved last.
func (t *table) hold(l *lock, req driver.AcquireRequest, now time.Time) driver.AcquireReply {
	l.leave(req.Owner)
	l.owner, l.since, l.expires, l.end = req.Owner, now, now.Add(req.TTL), time.Time{}
	l.holder, l.metadata = req.Holder, maps.Clone(req.Metadata)
	t.put(req.Name, l, now)
	return l.grant()
}

// prolong never shortens the grant.
func (l *lock) prolong(ttl time.Duration, now time.Time) {
	if expires := now.Add(ttl); expires.After(l.expires) {
		l.expires = expires
	}
}

func (t *table) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	return call(ctx, t, func(now time.Time) (reply driver.RaiseReply, err error) {
		l := t.locks[req.Name]
		if err := t.checkFloor(req.Floor, now); err != nil || !l.heldAt(now) || l.owner != req.Owner {
			return reply, err
		}
		if l.fence < req.Floor {
			l.mint(t.clock(now), req.Floor)
		}
		return driver.RaiseReply{Held: true, Fence: l.fence, FenceEnd: l.last}, nil
	})
}

func (t *table) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	for i, req := range reqs {
		replies[i], replies[i].Err = call(ctx, t, func(now time.Time) (reply driver.ExtendReply, err error) {
			l := t.locks[req.Name]
			if !l.heldAt(now) || l.owner != req.Owner {
				return reply, nil
			}
			if l.prolong(req.TTL, now); req.Exact {
				l.expires = now.Add(req.TTL)
			}
			return driver.ExtendReply{Held: true, End: l.endRequest(now)}, nil
		})
	}
	return replies
}

func (t *table) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	return call(ctx, t, func(now time.Time) (driver.ReleaseReply, error) {
		l := t.lock(req.Name)
		if req.Tombstone > 0 {
			l.dropTombstones(now)
			l.tombstones[req.Owner] = now.Add(req.Tombstone)
			t.put(req.Name, l, now)
		}
		if req.Leave {
			l.leave(req.Owner)
		}
		if l.heldAt(now) && l.owner == req.Owner {
			l.release()
		}
		if !l.heldAt(now) {
			t.handOff(l, now)
		}
		return driver.ReleaseReply{Released: l.released == req.Owner}, nil
	})
}

// release ends the present grant.
func (l *lock) release() { l.owner, l.released, l.metadata = "", l.owner, nil }

func (t *table) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	return call(ctx, t, func(now time.Time) (driver.State, error) {
		return t.locks[name].state(now), nil
	})
}

func (t *table) Close() error { return nil }

// clock is the time of the tokens: microseconds since the Unix epoch, by a clock that never steps
// back, so that the next token of a swept name is above its old tokens.
func (t *table) clock(now time.Time) int64 {
	return t.epoch.UnixMicro() + now.Sub(t.epoch).Microseconds()
}

// put stores l. Each time the table has doubled, it removes the locks that have no meaning any
// more, so that memory stays proportional to the names in use.
func (t *table) put(name driver.Name, l *lock, now time.Time) {
	t.locks[name] = l
	if len(t.locks) < max(t.sweep, 1024) {
		return
	}
	maps.DeleteFunc(t.locks, func(_ driver.Name, l *lock) bool {
		l.dropTombstones(now)
		return !l.heldAt(now) && len(l.tombstones) == 0 && l.first(now) == nil &&
			t.clock(now) > l.last+keepTokens.Microseconds()
	})
	t.sweep = 2 * len(t.locks)
}

func (l *lock) heldAt(now time.Time) bool {
	return l != nil && l.owner != "" && now.Before(l.expires)
}

func (l *lock) grant() driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: l.fence, FenceEnd: l.last, Waiters: len(l.queue)}
}

// state is empty if the name is free.
func (l *lock) state(now time.Time) driver.State {
	if !l.heldAt(now) {
		return driver.State{}
	}
	return driver.State{
		Held: true, Holder: l.holder, Fence: l.fence, Age: now.Sub(l.since), TTL: l.expires.Sub(now),
		Waiters: len(l.queue), Metadata: maps.Clone(l.metadata),
	}
}

// dropTombstones removes the tombstones whose time has passed.
func (l *lock) dropTombstones(now time.Time) {
	maps.DeleteFunc(l.tombstones, func(_ string, until time.Time) bool { return !now.Before(until) })
}
