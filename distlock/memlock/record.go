package memlock

import (
	"maps"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// record is the state of one name. A moment is the time since the Unix epoch. Each lookup calls expire,
// so no other method compares moments.
type record struct {
	held  bool
	grant // the last one, also after its end

	last       int64                    // the highest token that was ever reserved
	released   string                   // the last owner that was released
	tombstones map[string]time.Duration // by owner, with their ends

	queue   []*waiter // by ticket
	tickets int64     // given out
}

// grant is one answer that gave the name to an owner.
type grant struct {
	req     driver.AcquireRequest
	fence   int64
	asked   int64 // the token of the last Ask; 0: none
	since   time.Duration
	expires time.Duration
}

// expire removes what has ended by now: the grant, tombstones, waiters.
func (r *record) expire(now time.Duration) {
	r.held = r.held && now < r.expires
	maps.DeleteFunc(r.tombstones, func(_ string, end time.Duration) bool { return end <= now })
	r.queue = slices.DeleteFunc(r.queue, func(w *waiter) bool { return w.alive <= now })
}

// isCancelled reports whether the owner was released, or has a tombstone.
func (r *record) isCancelled(owner string) bool {
	return r.released == owner || r.tombstones[owner] > 0
}

func (r *record) heldBy(owner string) bool { return r.held && r.req.Owner == owner }

// heldUnder reports whether the present grant shows the token.
func (r *record) heldUnder(fence int64) bool { return r.held && r.shown() == fence }

// isFor reports whether the present grant is for the work.
func (r *record) isFor(work string) bool {
	return r.held && work != "" && r.req.Metadata[driver.WorkKey] == work
}

// hold grants the name to the request's owner.
func (r *record) hold(req driver.AcquireRequest, now time.Duration) driver.AcquireReply {
	r.leave(req.Owner)
	req.Metadata = maps.Clone(req.Metadata)
	r.held, r.grant = true, grant{req: req, since: now, expires: now + req.TTL}
	r.mint(0, now)
	return r.granted()
}

// mint reserves a block of tokens for the grant.
func (r *record) mint(floor int64, now time.Duration) {
	r.fence = max(r.last+1, now.Microseconds(), floor)
	r.last = max(r.fence, now.Microseconds()+driver.FenceBlock)
}

// shown returns the token that waiters see.
func (r *record) shown() int64 { return max(r.fence, r.asked) }

// release ends the present grant.
func (r *record) release() { r.held, r.released = false, r.req.Owner }

func (r *record) granted() driver.AcquireReply {
	return driver.AcquireReply{Outcome: driver.Granted, Fence: r.fence, FenceEnd: r.last, Waiters: len(r.queue)}
}

// busy refuses a request. A request with a promise enters the queue.
func (r *record) busy(req driver.AcquireRequest, now time.Duration) driver.AcquireReply {
	reply := driver.AcquireReply{Outcome: driver.Busy}
	if req.Alive > 0 {
		reply.Ticket, reply.Outcome = r.enter(req, now)
	}
	reply.State = r.state(now)
	return reply
}

// state is empty if the name is free.
func (r *record) state(now time.Duration) driver.State {
	if !r.held {
		return driver.State{}
	}
	return driver.State{
		Held: true, Holder: r.req.Holder, Fence: r.shown(), Age: now - r.since, TTL: r.expires - now,
		Waiters: len(r.queue), Metadata: maps.Clone(r.req.Metadata),
	}
}
