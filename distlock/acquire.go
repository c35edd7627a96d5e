package distlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Acquire waits until it holds the lock on key, and returns the lease. It waits until ctx ends and for at most
// Options.Wait, see [WithWait].
//
// A key is any text of 1 to 1024 bytes, valid UTF-8, without control characters.
//
// Acquire fails with a [BusyError] if somebody else holds the lock for longer than the caller waits (the error of ctx
// is joined to it if that is why), [ErrUnavailable] if the lock service does not answer, [ErrInvalidKey], [ErrClosed],
// or the error of ctx. A ctx that carries the lease for key already is refused at once: with a BusyError whose Self is
// true, or with [ErrLost] or [ErrNotHeld] if that lease has ended. Use [Locker.Do], which joins the lease.
//
// After a failure nothing is held: a grant that arrives too late for its caller is given back in the background.
// If ctx ends in the very moment of the grant, either may win; a lease that was returned is held in any case.
func (l *Locker) Acquire(ctx context.Context, key string) (*Lease, error) {
	return l.acquire(ctx, key, l.opts.TTL, l.patience(ctx))
}

// TryAcquire is Acquire without waiting for another holder: it asks the lock service once.
func (l *Locker) TryAcquire(ctx context.Context, key string) (*Lease, error) {
	return l.acquire(ctx, key, l.opts.TTL, l.once())
}

type waitKey struct{}

// WithWait returns a context under which the next acquisition waits for at most wait, in place of Options.Wait. Zero
// means not to wait, negative that ctx alone decides. It does not reach acquisitions under the lease thus acquired.
func WithWait(ctx context.Context, wait time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, &wait)
}

func withoutWait(ctx context.Context) context.Context {
	if wait, _ := ctx.Value(waitKey{}).(*time.Duration); wait == nil {
		return ctx
	}
	return context.WithValue(ctx, waitKey{}, (*time.Duration)(nil))
}

// patience says how long and how often to ask for a lock that is busy.
type patience struct {
	attempts int           // 0: as many as fit
	wait     time.Duration // negative: until ctx ends
	delay    func(attempts int) time.Duration
	promptly bool // wake up when the holder's TTL has passed, even if delay is longer
}

// once asks a single time; the wait then only bounds how long the service may take to answer.
func (l *Locker) once() patience { return patience{attempts: 1, wait: l.opts.Wait} }

func (l *Locker) patience(ctx context.Context) patience {
	p := patience{wait: l.opts.Wait, delay: l.opts.Retry.delay, promptly: true}
	if wait, _ := ctx.Value(waitKey{}).(*time.Duration); wait != nil {
		p.wait = *wait
	}
	if p.wait == 0 {
		return l.once()
	}
	return p
}

func (l *Locker) acquire(ctx context.Context, key string, ttl time.Duration, p patience) (*Lease, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.end()

	op := &Operation{Name: OpAcquire, Backend: l.backend, Key: key, TTL: ttl}
	caller := ctx
	ctx = l.opts.Observer.Start(ctx, op)
	defer l.opts.Observer.End(ctx, op)

	start := time.Now()
	lease, err := l.contend(ctx, caller, op, p)
	op.Wait = time.Since(start)
	op.Err = err
	op.Outcome = acquireOutcome(err, p)
	if lease != nil {
		op.Fence, op.Handoff = lease.fence, HandoffNone
	}
	return lease, err
}

func acquireOutcome(err error, p patience) Outcome {
	switch outcome := OutcomeOf(err); {
	case outcome == OutcomeDone:
		return OutcomeAcquired
	case outcome == OutcomeTimeout && p.attempts == 1:
		return OutcomeBusy
	default:
		return outcome
	}
}

// contend is the one place where a lock is waited for: it asks, sleeps and asks again. caller is the context that the
// lease's own will be made from; ctx is the same with what the Observer added.
func (l *Locker) contend(ctx, caller context.Context, op *Operation, p patience) (lease *Lease, err error) {
	if lease, ok := l.FromContext(ctx, op.Key); ok {
		if err := lease.Err(); err != nil {
			return nil, err
		}
		return nil, &BusyError{Self: true, Holder: l.opts.Holder, Held: time.Since(lease.acquired)}
	}
	if ctx.Err() != nil {
		return nil, failed("acquire", ctx, errLeft)
	}
	req := driver.AcquireRequest{
		Name:     l.name(op.Key),
		Owner:    newOwner(),
		TTL:      op.TTL,
		Holder:   l.opts.Holder,
		Metadata: op.Metadata,
	}
	doubt := false // whether a copy of a request may take effect later
	defer func() {
		if lease == nil && doubt {
			l.background(func() { l.cleanUp(req) })
		}
	}()
	start := time.Now()
	var giveUp context.Context
	stop := func() {}
	defer func() { stop() }()
	// until makes giveUp when it is first needed: a lock that is free needs no timer.
	until := func() context.Context {
		if giveUp == nil {
			giveUp, stop = l.giveUp(ctx, start, p.wait)
		}
		return giveUp
	}
	var blocked *BusyError
	for {
		lease, busy, inDoubt, err := l.attempt(ctx, until, caller, req, op)
		doubt = doubt || inDoubt
		switch {
		case lease != nil:
			lease.doubt = doubt
			if !l.adopt(lease) {
				doubt = true
				return nil, ErrClosed
			}
			lease.start()
			return lease, nil
		case errors.Is(err, errLeft):
			return nil, gaveUp(until(), ctx, blocked)
		case err != nil:
			return nil, err
		}
		blocked = &BusyError{Holder: busy.Holder, Held: busy.Age, Waiters: busy.Waiters}
		op.Blocker = busy.Metadata
		if op.Attempts == p.attempts {
			return nil, blocked
		}
		pause := p.delay(op.Attempts)
		if p.promptly && busy.TTL >= 0 {
			pause = min(pause, busy.TTL+time.Millisecond)
		}
		if !sleep(until(), pause) {
			return nil, gaveUp(until(), ctx, blocked)
		}
	}
}

// giveUp returns a context that ends with ctx, the wait that began at start, or the Locker, whichever comes first.
func (l *Locker) giveUp(ctx context.Context, start time.Time, wait time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	waited := func() bool { return true }
	if wait >= 0 {
		waited = time.AfterFunc(time.Until(start.Add(wait)), func() { cancel(errWaited) }).Stop
	}
	return ctx, func() {
		waited()
		unhook()
		cancel(nil)
	}
}

var (
	errWaited   = errors.New("the wait is used up")
	errNoAnswer = errors.New("no answer within the wait: is the lock service there, and is Wait long enough for its latency?")
)

// gaveUp says why an acquisition ended without an answer, or with busy as the last one.
func gaveUp(giveUp, ctx context.Context, blocked *BusyError) error {
	cause := context.Cause(giveUp)
	switch {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case blocked == nil && errors.Is(cause, errWaited):
		return unavailable("acquire", errNoAnswer)
	case blocked == nil:
		return failed("acquire", ctx, errLeft)
	case errors.Is(cause, errWaited):
		return blocked
	default:
		return fmt.Errorf("%w: %w", blocked, ended(ctx))
	}
}

// attempt asks the lock service once. It returns a lease that nobody knows of yet, or who holds the lock, or an error; errLeft if the context that
// until makes ended before the answer came. The bool says whether a copy of the request may take effect later.
func (l *Locker) attempt(ctx context.Context, until func() context.Context, caller context.Context, req driver.AcquireRequest, op *Operation) (*Lease, driver.State, bool, error) {
	op.Attempts++
	// ⚑ Trust counts from before the request is sent: the service's TTL starts at some later moment.
	start := time.Now()
	reply, doubt, err := direct(ctx, until, l, req.TTL,
		func(ctx context.Context) (driver.AcquireReply, error) { return l.driver.Acquire(ctx, req) },
		func(reply driver.AcquireReply, err error) {
			if reply.Outcome == driver.Granted { // in spite of the mark, or before it
				l.cleanUp(req)
			}
		})
	switch {
	case errors.Is(err, ErrClosed): // and so nothing was sent
		return nil, driver.State{}, false, err
	case errors.Is(err, errLeft):
		return nil, driver.State{}, true, err
	case err != nil:
		return nil, driver.State{}, !errors.Is(err, driver.ErrForeign), unavailable("acquire", err)
	case reply.Outcome == driver.Busy:
		return nil, reply.State, doubt, nil
	case reply.Outcome == driver.Void:
		return nil, driver.State{}, doubt, unavailable("acquire", errors.New("the lock service has cancelled this acquisition: try again"))
	}

	lease := newLease(l, caller, req, start, reply.Fence)
	if !time.Now().Before(lease.deadline) {
		return nil, driver.State{}, true, unavailable("acquire",
			fmt.Errorf("the grant took %s to arrive, too much of the TTL of %s", time.Since(start).Round(time.Millisecond), req.TTL))
	}
	return lease, driver.State{}, doubt, nil
}

// undo gives back what an acquire with unknown outcome may have taken, or may still take: the service remembers the
// owner as cancelled, so a copy of the request that is late finds itself refused.
func (l *Locker) undo(req driver.AcquireRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), req.TTL)
	defer cancel()
	_, err := l.driver.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, VoidFor: req.TTL})
	return err
}

func (l *Locker) cleanUp(req driver.AcquireRequest) {
	if err := l.undo(req); err != nil {
		l.opts.Logger.Debug("distlock: an acquisition whose outcome is unknown could not be undone; if it was granted, its lock stands until the TTL has passed",
			"namespace", req.Name.Namespace, "ttl", req.TTL, "error", err)
	}
}

// newOwner makes the identity of one acquisition.
func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// sleep waits for d and reports whether ctx outlived it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
