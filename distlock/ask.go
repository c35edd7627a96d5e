package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// ask asks the backend once. It returns a lease, or a reply that is busy or full, or an error.
func (a *acquisition) ask(ctx context.Context, limit time.Duration) (*Lease, driver.AcquireReply, error) {
	l := a.locker
	a.op.Attempts++
	a.promise()
	// ⚑ Trust counts from before the request is sent: the TTL of the backend starts later.
	sent, asked := trust.Now(), time.Now()
	a.place.sent[0], a.place.sent[1] = sent, a.place.sent[0]
	before := a.copiesMayArrive
	a.copiesMayArrive = true // until the answer comes; the driver may panic instead
	reply, err := callDriver(ctx, limit, func(ctx context.Context) (driver.AcquireReply, error) {
		return l.driver.Acquire(ctx, a.req)
	})
	if err != nil {
		// A script that lacks a right may have written before it stopped.
		stopped := errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrNotDone)
		a.copiesMayArrive = before || driver.MayHaveEffect(err) || stopped
		return nil, reply, failedRead("acquire", err)
	}
	a.copiesMayArrive = before || reply.Replayed
	switch reply.Outcome {
	case driver.Busy, driver.Full:
		a.req.Ticket = cmp.Or(reply.Ticket, a.req.Ticket)
		a.place.joined = reply.Ticket != 0
		a.noteAwaited(reply.State.Fence, asked)
		l.queues.Each(a.op.Key, func(other *acquisition) { other.noteAwaited(reply.State.Fence, asked) })
		return nil, reply, nil
	case driver.Cancelled:
		return nil, reply, unavailable("acquire", errCancelled)
	}
	lease, err := a.granted(reply, sent, a.req.TTL)
	a.copiesMayArrive = a.copiesMayArrive || err != nil
	if lease != nil && a.req.Ticket != 0 {
		a.op.Handoff = HandoffRemote
	}
	return lease, reply, err
}

// noteAwaited notes the token of the holder in the answer to a request. Tokens rise, so the lowest one is
// the first.
// ⚑ The holder may have changed between an earlier request and the start of the acquisition.
func (a *acquisition) noteAwaited(fence int64, asked time.Time) {
	if fence == 0 || asked.Before(a.start) {
		return
	}
	for first := a.awaited.Load(); first == 0 || fence < first; first = a.awaited.Load() {
		if a.awaited.CompareAndSwap(first, fence) {
			return
		}
	}
}

// granted makes the lease of a grant that lasts for ttl from some moment after sent. It fails if
// less than a quarter of that is left.
func (a *acquisition) granted(reply driver.AcquireReply, sent trust.Moment, ttl time.Duration) (*Lease, error) {
	l := a.locker
	g := newGrant(a, sent, ttl, reply)
	if at := trust.Now(); g.trust.TooLittleLeft(at) {
		return nil, unavailable("acquire", fmt.Errorf("the grant took %s of the TTL of %s to arrive and is released; "+
			"check the latency of the lock service, or use a longer TTL", at.Sub(sent).Round(time.Millisecond), ttl))
	}
	g.mu.Lock() // Close sees the grant from adopt on
	defer g.mu.Unlock()
	if !l.adopt(g) {
		return nil, ErrClosed
	}
	g.inQueue = l.queues.Granted(a.op.Key, a.waiter, g.holder.acquired, reply.Waiters > 0, g.holder.answer())
	g.startLocked() // ⚑ not sooner: the end of the lease has to end the grant in the queue
	return g.holder, nil
}

// woken makes the lease of a handoff by the backend, or returns nil: then the acquisition has to
// ask.
//
// ⚑ The lease may begin at once, with the rest of the handoff's TTL. That TTL began after the last
// request that the backend had handled before, so it counts from the sending of that request; an
// unknown request does not count. If too little is left, the answer to a claim comes first.
func (a *acquisition) woken(wake driver.Wake) *Lease {
	behind := a.req.Seq - wake.Seq
	if wake.Grant.Outcome != driver.Granted || wake.Seq < 1 || behind < 0 || behind >= int64(len(a.place.sent)) ||
		a.locker.opts.RenewEvery < 0 {
		return nil
	}
	// ⚑ The lease lasts for no longer than was promised: any client of the backend may send a
	// message.
	ttl := min(wake.TTL, max(min(maxPromise, a.req.TTL), driver.MinHandoff))
	lease, err := a.granted(wake.Grant, a.place.sent[behind], ttl)
	if err == nil { // else the next attempt claims the grant
		a.op.Handoff = HandoffRemote
	}
	return lease
}
