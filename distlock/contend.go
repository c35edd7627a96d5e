package distlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/trust"
	"github.com/belugalock/belugalock/internal/calls"
)

// patience says how long and how often to ask for a lock that is busy.
type patience struct {
	attempts int           // 0: as many as fit
	wait     time.Duration // negative: until ctx ends; of a single attempt it bounds the time for the answer
	delay    func(attempts int) time.Duration
	promptly bool // wake up when the holder's TTL has passed, even if delay is longer
}

// firstAnswer is how long the backend may take at most to answer an acquisition for the first time,
// or a call that asks once. If the TTL is shorter, the TTL is the limit.
const firstAnswer = 5 * time.Second

// acquisition is one call of Acquire, contending for its lock.
type acquisition struct {
	locker *Locker
	caller context.Context // what the lease's own context will be made from
	ctx    context.Context // the same with what the Observer added
	op     Operation
	patience
	start time.Time

	// Its place in the process's line. It has none if it asks so many times and no more.
	line    *line // set before it contends if it is the process's contender already
	place   place
	arrival uint64
	counted bool      // the service's line has it, or is about to; guarded by lines.mu
	turn    chan turn // nil if it has not waited

	req   driver.AcquireRequest
	doubt bool // a copy of a request may take effect later
	said
	answered bool          // the backend has answered this acquisition, not only an earlier contender
	common   error         // why it has failed, if the next contender may fail for the same reason
	poke     chan struct{} // wakes it up when it polls and should ask; made under lines.mu
	again    bool          // it should, but is not there yet; guarded by lines.mu

	// Its place in the service's line.
	lined   bool               // it stands in it, or is about to
	entered bool               // the service has said so, of this owner
	wakes   <-chan driver.Wake // nil: it is not told, and polls
	called  atomic.Bool        // it is told
	deaf    func()             // ends the wakes
	sent    [2]trust.Moment    // when the last request and the one before it were sent
	check   time.Duration      // how soon after a request it promises the next

	// giveUp ends with ctx, a limit of time, or the Locker, whichever comes first; see setLimit.
	giveUp context.Context
	stop   context.CancelFunc
}

// contend gets the lock: at once, or in its turn.
func (a *acquisition) contend() (lease *Lease, err error) {
	l := a.locker
	if lease, ok := l.FromContext(a.ctx, a.op.Key); ok {
		if err := lease.Err(); err != nil {
			return nil, err
		}
		return nil, &BusyError{Self: true, Holder: l.opts.Holder, Held: time.Since(lease.acquired)}
	}
	if a.ctx.Err() != nil {
		return nil, left("acquire", a.ctx)
	}
	if a.attempts > 0 {
		return a.compete()
	}
	asks, err := l.lines.join(a)
	if err != nil {
		return nil, err
	}
	if !asks {
		if lease, err := a.stand(); lease != nil || err != nil {
			return lease, err
		}
	}
	defer func() { // also if the driver panics
		if lease == nil {
			l.lines.yield(a)
		}
	}()
	return a.compete()
}

// stand waits in line until the lock is handed over, or it is time to ask the lock service: then it returns neither a lease nor
// an error.
func (a *acquisition) stand() (*Lease, error) {
	var waited <-chan time.Time
	if a.wait >= 0 {
		timer := time.NewTimer(positive(time.Until(a.start.Add(a.wait))))
		defer timer.Stop()
		waited = timer.C
	}
	var (
		t     turn
		cause error
	)
	select {
	case t = <-a.turn:
	case <-a.ctx.Done():
		cause = a.ctx.Err()
	case <-waited:
		cause = usedUp{limit: a.wait}
	}
	defer a.locker.lines.turns.Put(a.turn)
	if cause != nil {
		came := false
		if t, came = a.locker.lines.leave(a); t.lease == nil {
			if came && t.err == nil {
				a.locker.lines.yield(a)
			}
			return nil, a.gaveUp(cause)
		}
	}
	if t.lease != nil {
		a.op.Blocker, a.op.Handoff = t.blocker, HandoffLocal
	}
	return t.lease, t.err
}

// compete asks the lock service until it has the lock.
func (a *acquisition) compete() (lease *Lease, err error) {
	l := a.locker
	a.req = driver.AcquireRequest{
		Name:     l.name(a.op.Key),
		Owner:    newOwner(),
		TTL:      a.op.TTL,
		Holder:   l.opts.Holder,
		Metadata: a.op.Metadata,
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	unhook := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	a.setLimit(ctx)
	defer func() {
		a.stop()
		unhook()
		cancel(nil)
		if a.deaf != nil {
			a.deaf()
		}
		if lease == nil {
			a.undo()
		}
	}()
	if a.turn != nil && l.queue != nil { // it has waited here, so it will have to wait there
		a.listen()
	}
	for {
		lease, busy, err := a.attempt()
		switch {
		case errors.Is(err, calls.ErrLeft):
			return nil, a.gaveUp(context.Cause(a.giveUp))
		case lease != nil:
			return lease, nil
		case errors.Is(err, errVoid) && (a.entered || a.lined && a.doubt):
			a.reenter()
			continue
		case err != nil && !a.outlives(err):
			if l.closing.Err() != nil { // and that, not what became of the last request, is why it does not go on
				return nil, ErrClosed
			}
			a.failure = err
			if !errors.Is(err, errVoid) {
				a.common = a.interrupted()
			}
			return nil, a.interrupted()
		}
		if a.failure = err; err == nil {
			if !a.answered { // from here on the wait is the limit
				a.answered = true
				a.stop()
				a.setLimit(ctx)
			}
			a.at = time.Now()
			a.blocked = &BusyError{Holder: busy.State.Holder, Held: busy.State.Age, Waiters: busy.State.Waiters}
			if busy.Ticket != 0 {
				a.blocked.Waiters-- // itself
			}
			if a.line == nil {
				a.blocked.Waiters += l.lines.unseen(a.op.Key)
			}
			a.blocker = busy.State.Metadata
			a.op.Blocker = a.blocker
		}
		if a.op.Attempts == a.attempts {
			return nil, cmp.Or[error](a.interrupted(), a.blocked)
		}
		if a.line != nil {
			l.lines.heard(a)
			switch {
			case busy.Outcome == driver.Full:
				return nil, fmt.Errorf("%w: %w", a.blocked, errFull)
			case l.queue != nil && !a.lined:
				a.listen()
				continue
			}
		}
		lease, err = a.pause(busy)
		if lease != nil || err != nil {
			return lease, err
		}
	}
}

// pause waits until it is time to ask again, or until the lock service has handed the lock over.
func (a *acquisition) pause(busy driver.AcquireReply) (*Lease, error) {
	d := a.check
	if a.wakes == nil || a.failure != nil { // in line or not, it may not be called
		d = a.delay(a.op.Attempts)
	}
	if a.failure == nil && a.promptly && busy.State.TTL >= 0 {
		d = min(d, busy.State.TTL+time.Millisecond)
	}
	timer := time.NewTimer(positive(d))
	defer timer.Stop()
	select {
	case wake, ok := <-a.wakes:
		if !ok { // nobody will be called any more
			a.wakes = nil
			a.called.Store(false)
			return nil, nil
		}
		return a.woken(wake), nil
	case <-a.poke:
	case <-timer.C:
	case <-a.giveUp.Done():
		return nil, a.gaveUp(context.Cause(a.giveUp))
	}
	return nil, nil
}

// outlives reports whether to go on asking after err. A service that is there but cannot answer now, as while it fails
// over, is given time; so is one that had answered before: who waits in line does not lose its place to a lost connection.
// But not for ever, even if the caller would wait: after a TTL of silence there is no lease left to wait for.
func (a *acquisition) outlives(err error) bool {
	switch {
	case errors.Is(err, errVoid), definite(err), calls.Unsettled(err):
		return false
	case a.blocked == nil && !errors.Is(err, driver.ErrTemporary):
		return false
	}
	return time.Since(a.at) < a.op.TTL
}

// definite reports whether every other request would fail with err of the backend, too.
func definite(err error) bool {
	return errors.Is(err, driver.ErrForeign) || errors.Is(err, driver.ErrRefused)
}

// attempt asks the lock service once. It returns a lease, or a reply that is busy or full, or an error; calls.ErrLeft if the caller has
// to go before the answer has come.
func (a *acquisition) attempt() (*Lease, driver.AcquireReply, error) {
	var none driver.AcquireReply
	l := a.locker
	a.op.Attempts++
	a.promise()
	// ⚑ Trust counts from before the request is sent: the service's TTL starts at some later moment.
	sent := trust.Now()
	a.sent[0], a.sent[1] = sent, a.sent[0]
	limit := a.req.TTL
	if !a.answered {
		limit = min(limit, firstAnswer)
	}
	req, doubt := a.req, a.doubt
	a.doubt = true // until the answer comes; the driver may panic instead
	reply, err := call(a.giveUp, l, limit,
		func(ctx context.Context) (driver.AcquireReply, error) { return l.driver.Acquire(ctx, req) },
		func(reply driver.AcquireReply, err error) {
			if reply.Outcome == driver.Granted { // in spite of the mark, or before it
				l.cleaner.Cancel(req, 0)
			}
		})
	switch {
	case err == calls.ErrLeft:
		return nil, none, err
	case err != nil:
		// A script that lacks a right may have written before it stopped.
		a.doubt = doubt || driver.MayHaveEffect(err) || errors.Is(err, driver.ErrRefused)
		return nil, none, failedRead("acquire", err)
	}
	a.doubt = doubt || reply.Replayed
	switch reply.Outcome {
	case driver.Busy, driver.Full:
		a.req.Ticket = cmp.Or(reply.Ticket, a.req.Ticket)
		a.entered = reply.Ticket != 0
		return nil, reply, nil
	case driver.Void:
		return nil, none, unavailable("acquire", errVoid)
	}
	if a.req.Ticket != 0 {
		a.op.Handoff = HandoffRemote
	}
	lease, err := a.granted(reply, sent, a.req.TTL)
	a.doubt = a.doubt || err != nil
	return lease, none, err
}

// granted makes the lease of a grant that lasts for ttl from some moment after sent. It fails if less
// than a quarter of that is left.
func (a *acquisition) granted(reply driver.AcquireReply, sent trust.Moment, ttl time.Duration) (*Lease, error) {
	l := a.locker
	lease := newLease(a, sent, ttl, reply)
	if at := trust.Now(); lease.trust.Worn(at) {
		return nil, unavailable("acquire", fmt.Errorf("the grant took %s of the TTL of %s to arrive and is released; "+
			"check the latency of the lock service, or use a longer TTL", at.Sub(sent).Round(time.Millisecond), ttl))
	}
	if !l.adopt(lease) {
		return nil, ErrClosed
	}
	l.lines.hold(a, lease)
	lease.start()
	return lease, nil
}

// setLimit makes giveUp from ctx. Before the first answer of the backend, giveUp ends when that
// answer is overdue. After it, giveUp ends with the wait.
func (a *acquisition) setLimit(ctx context.Context) {
	a.giveUp, a.stop = ctx, func() {}
	if at, cause := a.limit(); cause.limit > 0 {
		a.giveUp, a.stop = context.WithDeadlineCause(ctx, at, cause)
	}
}

// limit returns when the acquisition gives up, and the cause. Without a cause, ctx alone decides.
func (a *acquisition) limit() (at time.Time, cause usedUp) {
	if a.wait >= 0 {
		at, cause = a.start.Add(a.wait), usedUp{limit: a.wait}
	}
	first := min(firstAnswer, a.op.TTL)
	if overdue := a.at.Add(first); !a.answered && (a.wait < 0 || overdue.Before(at)) {
		at, cause = overdue, usedUp{limit: first, silent: true}
	}
	return at, cause
}

var errVoid = errors.New("the lock service has cancelled this acquisition: try again")

// usedUp ends an acquisition whose wait has passed or whose first answer is overdue. As the cause of a
// context it matches context.DeadlineExceeded. Without any answer the acquisition ends with
// ErrUnavailable, because the caller has cancelled nothing.
type usedUp struct {
	limit  time.Duration
	silent bool // the first answer is overdue
}

func (u usedUp) Error() string      { return calls.NoAnswer(u.limit) }
func (usedUp) Is(target error) bool { return target == context.DeadlineExceeded }

// interrupted is the failure that ended the acquisition, with what the service had said before it; nil if there is none.
func (a *acquisition) interrupted() error {
	if a.failure == nil || a.blocked == nil {
		return a.failure
	}
	return &interruptedError{a.failure, a.blocked}
}

// gaveUp says why the acquisition ended without an answer, or with busy as the last one; cause is why it did now.
func (a *acquisition) gaveUp(cause error) error {
	if a.blocked != nil {
		a.blocked = a.aged()
	}
	var limit usedUp
	// The cause of an ended ctx may be that of another Locker.
	over := a.ctx.Err() == nil && errors.As(cause, &limit)
	if limit.silent {
		a.failure = cmp.Or(a.failure, unavailable("acquire", errors.New(limit.Error())))
		a.common = a.interrupted()
	}
	switch {
	case a.locker.closing.Err() != nil: // the cause may be that of another Locker
		return ErrClosed
	case a.failure != nil && over:
		return a.interrupted()
	case a.failure != nil:
		return fmt.Errorf("%w: %w", a.interrupted(), ended(a.ctx))
	case a.blocked == nil && over:
		return unavailable("acquire", errors.New(limit.Error()))
	case a.blocked == nil:
		return left("acquire", a.ctx)
	case over:
		return a.blocked
	default:
		return fmt.Errorf("%w: %w", a.blocked, ended(a.ctx))
	}
}

// newOwner makes the identity of one acquisition.
func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
