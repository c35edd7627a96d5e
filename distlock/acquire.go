package distlock

import (
	"cmp"
	"context"
	"time"
)

// Acquire waits until it holds the lock on key, and returns the lease. It waits until ctx ends and for at most
// Options.Wait. [WithTTL] and [WithWait] change that for one call.
//
// Those who wait stand in line: first come, first served within the process, and if the lock service keeps a line, as Redis
// does, by ticket between processes. docs/semantics.md says by how much one can be overtaken.
//
// A key is any text of 1 to 1024 bytes, valid UTF-8, without control characters.
//
// Acquire fails with a [BusyError] if others hold the lock for longer than the caller waits, or if the
// queue is full. If ctx ended first, its error is joined. Acquire fails with [ErrUnavailable] if the
// backend does not answer, [ErrRefused] if the backend refuses, [ErrInvalidKey], [ErrInvalidOption],
// [ErrClosed], or the error of ctx.
//
// If ctx carries the lease for key already, Acquire fails at once: with a BusyError whose Self is true,
// or with [ErrLost] or [ErrNotHeld] if that lease has ended. Use [Locker.Do], which joins the lease.
//
// After a failure nothing is held: a grant that arrives too late for its caller is given back in the background.
// If ctx ends in the very moment of the grant, either may win; a lease that was returned is held in any case.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	o := l.callOptions(opts)
	return l.acquire(ctx, key, o.ttl, patience{wait: o.wait, delay: l.delay})
}

// TryAcquire is Acquire without waiting for another holder: it asks the lock service once. It never stands in line, and
// is not granted a lock that somebody in the service's line is to have.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	o := l.callOptions(opts)
	return l.acquire(ctx, key, o.ttl, patience{attempts: 1, wait: o.wait})
}

func (l *Locker) acquire(ctx context.Context, key string, ttl time.Duration, p patience) (lease *Lease, err error) {
	if err := validTTL(ttl); err != nil {
		return nil, err
	}
	if err := validKey(key); err != nil {
		return nil, err
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.end()

	start := time.Now()
	a := &acquisition{locker: l, caller: ctx, ctx: ctx, patience: p, start: start}
	a.op = Operation{Name: OpAcquire, Backend: l.backend, Key: key, TTL: ttl.Truncate(time.Millisecond)}
	op := &a.op
	returns := false
	defer func() {
		if !returns && lease != nil { // the Observer has ended the goroutine
			unused := lease // lease itself stays on the stack
			l.background(func() { _ = unused.release(context.WithoutCancel(ctx), errUnused) })
		}
	}()
	a.ctx = l.observe(ctx, op)
	defer func() {
		l.opts.Observer.End(a.ctx, op)
		returns = true
	}()

	out := a.contend()
	lease, err = out.lease, out.err
	op.Wait = time.Since(a.start)
	op.Err = err
	op.Outcome = acquireOutcome(err, p)
	if lease != nil {
		op.Fence, op.Handoff = lease.Fence(), cmp.Or(op.Handoff, HandoffNone)
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
