package distlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/queue"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// firstAnswer is how long the backend may take at most to answer an acquisition for the first time,
// or a call that asks once. If the TTL is shorter, the TTL is the limit.
const firstAnswer = 5 * time.Second

// ownWait is how long a wait behind a lease of the own Locker lasts before a line says so.
const ownWait = time.Second

// acquisition is one call of Acquire, contending for its lock.
type acquisition struct {
	locker *Locker
	caller context.Context // the context of the lease is made from it
	ctx    context.Context // the same with the additions of the Observer
	op     Operation
	callOptions
	start   time.Time
	waiter  *waiter // its place in the process; nil if it asks a number of times and no more
	last    lastAnswer
	handoff Handoff // of the grant, if it comes and is used
	// awaited is the lowest token of a holder that the backend has shown since start; 0: none. Answers to
	// other requests of the process count, too.
	awaited atomic.Int64

	req             driver.AcquireRequest
	copiesMayArrive bool // a copy of a request may take effect later
	place           place
}

// contend gets the lock: at once, or after a wait in the queue.
func (a *acquisition) contend() (out outcome) {
	l := a.locker
	if lease, ok := l.FromContext(a.ctx, a.op.Key); ok {
		if err := lease.Err(); err != nil {
			return outcome{err: err}
		}
		return outcome{err: &BusyError{Self: true, Holder: l.opts.Holder, Held: time.Since(lease.acquired)}}
	}
	if a.ctx.Err() != nil {
		return outcome{err: callerLeft("acquire", a.ctx)}
	}
	if a.attempts == 0 {
		if a.waiter = l.queues.Join(a.op.Key, a); a.waiter == nil {
			return outcome{err: ErrClosed}
		}
		if a.waiter.BehindHold() {
			defer time.AfterFunc(ownWait, a.warnOfOwnWait).Stop()
		}
		if a.waiter.Waited {
			if out = a.waitBehindProcess(); out.lease != nil || out.err != nil {
				return out
			}
		}
		defer func() { // also if the driver panics
			if out.lease == nil {
				a.waiter.Yield(out.failure, out, outcome{last: a.last})
			}
		}()
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	if a.wait >= 0 {
		ctx, cancel = context.WithDeadline(ctx, a.start.Add(a.wait))
		defer cancel()
	}
	defer context.AfterFunc(l.closing, cancel)()
	return a.compete(ctx)
}

// compete asks the backend until it grants the lock, or ctx ends, or the backend is silent for too
// long: for the time of a first answer, and after it for a TTL.
func (a *acquisition) compete(ctx context.Context) (out outcome) {
	l := a.locker
	a.req = driver.AcquireRequest{
		Name:     l.name(a.op.Key),
		Owner:    newOwner(),
		TTL:      a.op.TTL,
		Holder:   l.opts.Holder,
		Metadata: a.op.Metadata,
		Frees:    a.frees,
	}
	defer func() {
		a.place.stop()
		if out.lease == nil {
			a.undo()
		}
	}()
	// How long the backend may be silent, and since when it is.
	patience, since := min(firstAnswer, a.op.TTL), time.Now()
	if a.waiter != nil && a.waiter.Waited && l.caps.Queues { // it would have to wait there, too
		a.joinQueue(ctx, patience)
	}
	for ctx.Err() == nil {
		limit := patience - time.Since(since)
		if limit <= 0 {
			return a.failed(cmp.Or(a.last.failure, unavailable("acquire", errors.New(noAnswer(patience)))))
		}
		lease, busy, err := a.attempt(ctx, limit)
		switch {
		case lease != nil:
			return outcome{lease: lease}
		case err != nil && ctx.Err() != nil: // the end of ctx is the reason, whatever became of the request
			continue
		case errors.Is(err, errCancelled) && (a.place.confirmed || a.place.joined && a.copiesMayArrive):
			// A handoff to this owner was not claimed in time.
			patience, since = a.op.TTL, time.Now()
			a.reenter(ctx, patience)
			continue
		case err != nil && !a.outlives(err):
			if late := (*deadlineError)(nil); errors.As(err, &late) {
				err = cmp.Or(a.last.failure, err) // ⚑ the end of the patience hides why the backend gave no lock
			}
			return a.failed(err)
		}
		if a.last.failure = err; err == nil {
			patience, since = a.op.TTL, time.Now()
			a.note(busy)
		}
		if a.op.Attempts == a.attempts {
			return outcome{err: a.last.err(0)}
		}
		if a.waiter != nil {
			a.waiter.Answered(outcome{last: a.last}, err != nil)
			switch {
			case busy.Outcome == driver.Full:
				return outcome{err: fmt.Errorf("%w: %w", a.last.err(a.waiter.Behind()), errFull)}
			case (l.caps.Queues || l.listener != nil) && !a.place.joined:
				a.joinQueue(ctx, patience-time.Since(since))
				continue
			case err == nil && a.mayListenAgain():
				a.listen(ctx, min(checkGrace, a.op.TTL/4)) // ⚑ its place must not end before the next request
				continue                                   // a wake may have been missed
			}
		}
		if lease := a.pause(ctx, busy, patience-time.Since(since)); lease != nil {
			return outcome{lease: lease}
		}
		if err == nil { // a pause after an answer is no silence
			since = time.Now()
		}
	}
	return a.gaveUp(a.behind())
}

// warnOfOwnWait logs, once in the life of a Locker, that a call waits behind a lease of its own process: it
// may wait for the function that it is part of.
func (a *acquisition) warnOfOwnWait() {
	if !a.waiter.BehindHold() {
		return
	}
	a.locker.warnOwnWait.Do(func() {
		a.locker.log(a.ctx, slog.LevelWarn, "distlock: a call has waited for 1 s behind a lease of its own process; "+
			"if a call inside a Do or Turn was given the outer context, it waits for itself: "+
			"pass on the context of the function", a.op.Key)
	})
}

// behind is the number of waiters in the process behind the contender. The backend does not count them.
func (a *acquisition) behind() int {
	if a.waiter == nil {
		return 0 // see note
	}
	return a.waiter.Behind()
}

// undo withdraws all requests of the acquisition. The backend ends a grant whose caller has left. A
// request that reaches the backend after that finds the tombstone of its owner.
func (a *acquisition) undo() {
	req := driver.ReleaseRequest{Name: a.req.Name, Owner: a.req.Owner, Leave: a.place.joined}
	if a.copiesMayArrive {
		req.Tombstone = cleanup.Tombstone(a.req.TTL)
	}
	if a.copiesMayArrive || req.Leave {
		a.locker.cleaner.Add(req, a.req.TTL, 0)
	}
}

// note keeps a busy answer of the backend.
func (a *acquisition) note(busy driver.AcquireReply) {
	s := busy.State
	if busy.Ticket != 0 {
		s.Waiters-- // itself
	}
	if a.waiter == nil {
		s.Waiters += a.locker.queues.Unseen(a.op.Key)
	}
	a.last = lastAnswer{at: time.Now(), metadata: s.Metadata, ticket: a.req.Ticket,
		busy: &BusyError{Holder: s.Holder, ThisProcess: a.locker.queues.Held(a.op.Key), Held: s.Age, Waiters: s.Waiters}}
	a.op.Blocker = s.Metadata
}

// pause waits until it is time to ask again. After a failure it lasts no longer than the patience. It
// returns a lease if the backend has handed the lock off.
func (a *acquisition) pause(ctx context.Context, busy driver.AcquireReply, patience time.Duration) *Lease {
	d := a.place.askWithin
	if a.place.wakes == nil || a.last.failure != nil { // a notification is not sure to come
		d = a.locker.opts.Retry.delay(a.op.Attempts)
		if a.attempts > 0 {
			d = a.retryDelay
		}
		if a.place.joined {
			d = min(d, a.place.askWithin) // ⚑ its place must not end before the next request
		}
	}
	if a.last.failure != nil {
		d = min(d, patience)
	}
	var askAgain <-chan struct{}
	if a.waiter != nil {
		askAgain = a.waiter.AskAgain()
		if a.last.failure == nil && busy.State.TTL >= 0 {
			d = min(d, busy.State.TTL+time.Millisecond)
		}
	}
	timer := time.NewTimer(atLeastOneTick(d))
	defer timer.Stop()
	select {
	case wake, ok := <-a.place.wakes:
		if ok {
			return a.woken(wake)
		}
		a.place.wakes = nil // notifications have ended
		a.waiter.Notified.Store(false)
	case <-askAgain:
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// outlives reports whether to go on after err, while patience lasts. A backend that cannot answer now,
// as during a failover, gets time. So does a backend that has answered before: a waiter does not lose
// its place to a lost connection. After a TTL of silence there is no lease left to wait for.
func (a *acquisition) outlives(err error) bool {
	return !errors.Is(err, errCancelled) && !definite(err) &&
		(a.last.busy != nil || errors.Is(err, driver.ErrTemporary))
}

// definite reports whether every other request would fail with err of the backend, too.
func definite(err error) bool {
	return errors.Is(err, driver.ErrForeign) || errors.Is(err, driver.ErrRefused)
}

// attempt asks the backend once. It returns a lease, or a reply that is busy or full, or an error.
func (a *acquisition) attempt(ctx context.Context, limit time.Duration) (*Lease, driver.AcquireReply, error) {
	var none driver.AcquireReply
	l := a.locker
	a.op.Attempts++
	a.promise()
	// ⚑ Trust counts from before the request is sent: the TTL of the backend starts later.
	sent, asked := trust.Now(), time.Now()
	a.place.sent[0], a.place.sent[1] = sent, a.place.sent[0]
	before := a.copiesMayArrive
	a.copiesMayArrive = true // until the answer comes; the driver may panic instead
	reply, err := call(ctx, limit, func(ctx context.Context) (driver.AcquireReply, error) {
		return l.driver.Acquire(ctx, a.req)
	})
	if err != nil {
		// A script that lacks a right may have written before it stopped.
		stopped := errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrNotDone)
		a.copiesMayArrive = before || driver.MayHaveEffect(err) || stopped
		return nil, none, failedRead("acquire", err)
	}
	a.copiesMayArrive = before || reply.Replayed
	switch reply.Outcome {
	case driver.Busy, driver.Full:
		a.req.Ticket = cmp.Or(reply.Ticket, a.req.Ticket)
		a.place.confirmed = reply.Ticket != 0
		a.shown(reply.State.Fence, asked)
		l.queues.Each(a.op.Key, func(other *acquisition) { other.shown(reply.State.Fence, asked) })
		return nil, reply, nil
	case driver.Cancelled:
		return nil, none, unavailable("acquire", errCancelled)
	}
	if a.req.Ticket != 0 {
		a.handoff = HandoffRemote
	}
	lease, err := a.granted(reply, sent, a.req.TTL)
	a.copiesMayArrive = a.copiesMayArrive || err != nil
	return lease, none, err
}

// shown notes the token of the holder in the answer to a request. Tokens rise, so the lowest one is
// the first.
// ⚑ The holder may have changed between an earlier request and the start of the acquisition.
func (a *acquisition) shown(fence int64, asked time.Time) {
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
	g.hold = l.queues.Hold(a.op.Key, a.waiter, reply.Waiters > 0, outcome{last: g.holder.answer()})
	g.startLocked() // ⚑ not sooner: the end of the lease has to end the hold
	return g.holder, nil
}

var errCancelled = errors.New("the lock service has cancelled this acquisition: try again")

// failed is the outcome of an acquisition that err ends. A contender with a short TTL gives the
// backend less time than other waiters do, so its failure is its own. So is that of a request that a
// backend has refused and not done: a waiter that frees memory may pass.
func (a *acquisition) failed(err error) outcome {
	failure := queue.Repeated
	switch {
	case definite(err) && !errors.Is(err, driver.ErrNotDone):
		failure = queue.Shared
	case definite(err), errors.Is(err, errCancelled), a.op.TTL < a.locker.opts.TTL:
		failure = queue.Own
	}
	last := a.last
	last.failure = err
	return outcome{err: last.err(a.behind()), failure: failure, last: last}
}

// gaveUp is the outcome of an acquisition whose Locker was closed, whose caller has left, or whose wait is
// over, with other waiters in the process that the last answer does not count.
func (a *acquisition) gaveUp(others int) outcome {
	err, left := a.last.err(others), a.ctx.Err() != nil
	switch {
	case a.locker.closing.Err() != nil: // not the cause of ctx, which may be that of another Locker
		err = ErrClosed
	case left && err == nil:
		err = callerLeft("acquire", a.ctx)
	case left:
		err = fmt.Errorf("%w: %w", err, ctxError(a.ctx))
	case err == nil:
		err = unavailable("acquire", errors.New(noAnswer(a.wait)))
	}
	return outcome{err: err}
}

// newOwner makes the identity of one acquisition.
func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
