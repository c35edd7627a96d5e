package memlock

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// record is the state of one name. Its methods rely on expire for the present moment.
type record struct {
	held  bool
	grant // the last one, also after its end

	last       int64                // the highest token that was ever reserved
	released   string               // the last owner that was released
	tombstones map[string]time.Time // by owner, with their ends

	queue   []*waiter // by ticket
	tickets int64     // given out
}

// grant is one answer that gave the name to an owner.
type grant struct {
	req     driver.AcquireRequest
	fence   int64
	since   time.Time
	expires time.Time
	end     time.Time // the moment until which the holder is asked to end; zero: it is not asked
}

// keepTokens is how long the table remembers the last token of a free name beyond the moment that
// the token stands for.
const keepTokens = 2 * time.Second

// sweptToken is the highest token whose record may have been removed.
func sweptToken(now time.Time) int64 { return now.Add(-keepTokens).UnixMicro() }

// expire removes what has ended by now: the grant, tombstones, waiters.
func (r *record) expire(now time.Time) {
	r.held = r.held && now.Before(r.expires)
	maps.DeleteFunc(r.tombstones, func(_ string, end time.Time) bool { return !now.Before(end) })
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter) bool { return !now.Before(w.alive) })
}

// isCancelled reports whether the owner was released, or has a tombstone.
func (r *record) isCancelled(owner string) bool {
	return r.released == owner || !r.tombstones[owner].IsZero()
}

func (r *record) heldBy(owner string) bool { return r.held && r.req.Owner == owner }

// heldUnder reports whether the token is one of the present grant.
func (r *record) heldUnder(fence int64) bool { return r.held && r.fence <= fence && fence <= r.last }

// hold grants the name to the request's owner.
func (r *record) hold(req driver.AcquireRequest, now time.Time) driver.AcquireReply {
	r.leave(req.Owner)
	req.Metadata = maps.Clone(req.Metadata)
	r.held, r.grant = true, grant{req: req, since: now, expires: now.Add(req.TTL)}
	if req.Fence > 0 {
		r.fence, r.last = req.Fence, req.FenceEnd
	} else {
		r.mint(req.FenceFloor, now)
	}
	return r.granted()
}

// mint reserves a block of tokens for the grant.
func (r *record) mint(floor int64, now time.Time) {
	r.fence = max(r.last+1, now.UnixMicro(), floor)
	r.last = max(r.fence, now.UnixMicro()+driver.FenceBlock)
}

// checkFloor refuses tokens that only a damaged mark can ask for.
func checkFloor(floor int64, now time.Time) error {
	if floor > now.Add(driver.FloorAhead).UnixMicro() {
		return fmt.Errorf("memlock: %w", driver.ErrFloor)
	}
	return nil
}

// prolong never shortens the grant, unless it is exact.
func (r *record) prolong(ttl time.Duration, exact bool, now time.Time) {
	if expires := now.Add(ttl); exact || expires.After(r.expires) {
		r.expires = expires
	}
}

// release ends the present grant.
func (r *record) release() { r.held, r.released = false, r.req.Owner }

func (r *record) granted() driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: r.fence, FenceEnd: r.last, Waiters: len(r.queue)}
}

// busy refuses a request. A request with a promise enters the queue.
func (r *record) busy(req driver.AcquireRequest, now time.Time) driver.AcquireReply {
	reply := driver.AcquireReply{Outcome: driver.Busy}
	if req.Alive > 0 {
		reply.Ticket, reply.Outcome = r.enter(req, now)
	}
	reply.State = r.state(now)
	return reply
}

// state is empty if the name is free.
func (r *record) state(now time.Time) driver.State {
	if !r.held {
		return driver.State{}
	}
	return driver.State{
		Held: true, Holder: r.req.Holder, Fence: r.fence, Age: now.Sub(r.since), TTL: r.expires.Sub(now),
		Waiters: len(r.queue), Metadata: maps.Clone(r.req.Metadata),
	}
}

// endRequest is empty if the holder is not asked to end.
func (r *record) endRequest(now time.Time) driver.EndRequest {
	if r.end.IsZero() {
		return driver.EndRequest{}
	}
	return driver.EndRequest{Asked: true, Left: r.end.Sub(now)}
}
