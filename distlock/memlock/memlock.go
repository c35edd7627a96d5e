// Package memlock keeps locks in the memory of one process.
//
// It gives what every backend gives, fencing tokens and expiry included, between the goroutines of one process. It is
// for programs that run as a single instance, and for tests: under testing/synctest its TTLs follow the bubble's clock.
// Nothing is shared between two drivers, even in one process.
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

// New makes a Locker whose locks live in this process. Nil opts mean the defaults; options out of range are refused
// with distlock.ErrInvalidOption.
func New(opts *distlock.Options) (*distlock.Locker, error) {
	return distlock.New(NewDriver(), opts)
}

// NewDriver makes an empty lock table.
func NewDriver() driver.Driver {
	return &table{epoch: time.Now(), locks: make(map[driver.Name]*lock), wakes: make(map[string]chan driver.Wake),
		lost: make(map[*func(driver.Name, string)]bool)}
}

// table is the lock service: a map of what Redis would keep, under one mutex.
type table struct {
	epoch time.Time

	mu    sync.Mutex
	locks map[driver.Name]*lock
	sweep int                         // entries at which the next sweep is due
	wakes map[string]chan driver.Wake // by owner
	lost  map[*func(driver.Name, string)]bool
}

// lock is all that is known of one name.
type lock struct {
	owner    string // of the last grant; empty after its release
	expires  time.Time
	since    time.Time
	holder   string
	metadata map[string]string
	fence    int64
	last     int64                // the highest token that was ever reserved
	released string               // the last owner that was released
	void     map[string]time.Time // cancelled owners, until when
	line     []*waiter            // by ticket
	tickets  int64                // given out
	end      time.Time            // until when the holder is asked to end; zero: it is not asked
}

func (t *table) Capabilities() driver.Capabilities {
	return driver.Capabilities{Backend: "memory", Queues: true, FenceBlock: driver.FenceBlock, Exact: true}
}

// ended is the error of a call whose context has ended before it began.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memlock: %w: %w", driver.ErrNotSent, err)
	}
	return nil
}

func (t *table) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := ended(ctx); err != nil {
		return driver.AcquireReply{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if err := t.checkFloor(req.FenceFloor, now); err != nil {
		return driver.AcquireReply{}, err
	}
	l := t.locks[req.Name]
	if l == nil {
		l = &lock{}
	}
	if req.Fence > 0 {
		return t.acquireExactly(l, req, now)
	}
	if l.heldAt(now) && l.owner == req.Owner {
		l.prolong(req.TTL, now)
		return l.grant(), nil
	}
	if l.owner == req.Owner || l.released == req.Owner || now.Before(l.void[req.Owner]) {
		return driver.AcquireReply{Outcome: driver.Void}, nil
	}
	full := false
	if !l.heldAt(now) {
		if first := l.first(now); first == nil || !first.before(req) {
			return t.take(l, req, now), nil
		}
		t.handOver(l, now)
	}
	reply := driver.AcquireReply{Outcome: driver.Busy}
	if req.Alive > 0 {
		reply.Ticket, full = l.enter(req, now)
	}
	if full {
		reply.Outcome = driver.Full
	}
	reply.State = l.state(now)
	return reply, nil
}

func (t *table) Raise(ctx context.Context, req driver.RaiseRequest) (driver.RaiseReply, error) {
	if err := ended(ctx); err != nil {
		return driver.RaiseReply{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if err := t.checkFloor(req.Floor, now); err != nil {
		return driver.RaiseReply{}, err
	}
	l := t.locks[req.Name]
	if !l.heldAt(now) || l.owner != req.Owner {
		return driver.RaiseReply{}, nil
	}
	if l.fence < req.Floor {
		l.mint(t.clock(now), req.Floor)
	}
	return driver.RaiseReply{Held: true, Fence: l.fence, FenceEnd: l.last}, nil
}

// checkFloor refuses a floor that only a damaged mark can ask for.
func (t *table) checkFloor(floor int64, now time.Time) error {
	if floor > t.clock(now)+driver.FloorAhead.Microseconds() {
		return fmt.Errorf("memlock: %w", driver.ErrFloor)
	}
	return nil
}

// take grants the lock to who asks for it.
func (t *table) take(l *lock, req driver.AcquireRequest, now time.Time) driver.AcquireReply {
	l.mint(t.clock(now), req.FenceFloor)
	return t.hold(l, req, now)
}

// hold makes the one who asks the holder, under the tokens that were reserved last.
func (t *table) hold(l *lock, req driver.AcquireRequest, now time.Time) driver.AcquireReply {
	l.leave(req.Owner)
	l.end = time.Time{}
	l.owner, l.since, l.expires = req.Owner, now, now.Add(req.TTL)
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

// mint reserves the tokens of a grant.
func (l *lock) mint(clock, floor int64) {
	l.fence = max(l.last+1, clock, floor)
	l.last = max(l.fence, clock+driver.FenceBlock)
}

func (t *table) Extend(ctx context.Context, reqs []driver.ExtendRequest) []driver.ExtendReply {
	replies := make([]driver.ExtendReply, len(reqs))
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for i, req := range reqs {
		if replies[i].Err = ended(ctx); replies[i].Err != nil {
			continue
		}
		l := t.locks[req.Name]
		if !l.heldAt(now) || l.owner != req.Owner {
			continue
		}
		if l.prolong(req.TTL, now); req.Exact {
			l.expires = now.Add(req.TTL)
		}
		replies[i].Held, replies[i].End = true, l.endRequest(now)
	}
	return replies
}

func (t *table) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseReply, error) {
	if err := ended(ctx); err != nil {
		return driver.ReleaseReply{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	l := t.locks[req.Name]
	if l == nil {
		l = &lock{}
	}
	if req.VoidFor > 0 {
		if l.void == nil {
			l.void = make(map[string]time.Time)
		}
		l.dropMarks(now)
		l.void[req.Owner] = now.Add(req.VoidFor)
		t.put(req.Name, l, now)
	}
	if req.Leave {
		l.leave(req.Owner)
	}
	if l.heldAt(now) && l.owner == req.Owner {
		t.release(l, now)
		return driver.ReleaseReply{Released: true}, nil
	}
	if !l.heldAt(now) {
		t.handOver(l, now)
	}
	return driver.ReleaseReply{Released: l.released == req.Owner}, nil
}

// release ends the present grant.
func (t *table) release(l *lock, now time.Time) {
	l.owner, l.released, l.metadata = "", l.owner, nil
	t.handOver(l, now)
}

func (t *table) Inspect(ctx context.Context, name driver.Name) (driver.State, error) {
	if err := ended(ctx); err != nil {
		return driver.State{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if l := t.locks[name]; l.heldAt(now) {
		return l.state(now), nil
	}
	return driver.State{}, nil
}

func (t *table) Close() error { return nil }

// clock is the fence clock: microseconds since the Unix epoch, on a clock that never steps back, so that a forgotten
// name starts above its old tokens.
func (t *table) clock(now time.Time) int64 {
	return t.epoch.UnixMicro() + now.Sub(t.epoch).Microseconds()
}

// put stores l and, each time the table has doubled, forgets what has no meaning any more, so that memory stays
// proportional to the names in use.
func (t *table) put(name driver.Name, l *lock, now time.Time) {
	t.locks[name] = l
	if len(t.locks) < max(t.sweep, 1024) {
		return
	}
	for name, l := range t.locks {
		if l.dropMarks(now); !l.heldAt(now) && len(l.void) == 0 && l.first(now) == nil && t.clock(now) > l.last+keepTokens.Microseconds() {
			delete(t.locks, name)
		}
	}
	t.sweep = 2 * len(t.locks)
}

func (l *lock) heldAt(now time.Time) bool {
	return l != nil && l.owner != "" && now.Before(l.expires)
}

func (l *lock) grant() driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: l.fence, FenceEnd: l.last, Waiters: len(l.line)}
}

func (l *lock) state(now time.Time) driver.State {
	return driver.State{
		Held: true, Holder: l.holder, Fence: l.fence, Age: now.Sub(l.since), TTL: l.expires.Sub(now),
		Waiters: len(l.line), Metadata: maps.Clone(l.metadata),
	}
}

// dropMarks forgets the cancelled owners that have served their time.
func (l *lock) dropMarks(now time.Time) {
	maps.DeleteFunc(l.void, func(_ string, until time.Time) bool { return !now.Before(until) })
}
