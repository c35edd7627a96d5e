package distlock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"
)

// Acquire waits until it holds the lock on key, and returns the lease. It waits until ctx ends, and
// for at most Options.Wait. Waiters queue. A key has 1 to 1,024 bytes of UTF-8, without
// control characters.
//
// Acquire fails with a [BusyError] if the wait ends or the queue is full, with [ErrUnavailable],
// [ErrRefused], [ErrInvalidKey], [ErrInvalidOption], [ErrClosed], or the error of ctx. Then nothing is
// held, and a grant that arrives too late is released. If ctx carries the lease for key, Acquire fails
// at once: with a BusyError whose Self is true, or as [Lease.Err] of an ended lease.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, callOptions{ttl: l.opts.TTL, wait: l.opts.Wait}, opts)
}

// workKey is the key of fencing.ForWork in the metadata of a lock.
const workKey = "work"

// TryAcquire asks the backend once, and never queues. It is not granted a lock that a waiter in the
// backend's queue is to have. Errors: as [Locker.Acquire].
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, callOptions{ttl: l.opts.TTL, wait: l.opts.Wait, attempts: 1}, opts)
}

func (l *Locker) acquire(ctx context.Context, key string, o callOptions, opts []CallOption) (lease *Lease, err error) {
	a := &acquisition{locker: l, caller: ctx, callOptions: o, start: time.Now()}
	for _, set := range opts {
		set(&a.callOptions)
	}
	if err := validTTL(a.ttl); err != nil {
		return nil, err
	}
	if err := validKey(key); err != nil {
		return nil, err
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.workEnds()

	a.op = Operation{Name: OpAcquire, Backend: l.caps.Backend, Key: key, TTL: a.ttl.Truncate(time.Millisecond)}
	op := &a.op
	a.ctx = l.begin(ctx, op)
	if a.work != "" {
		shown := map[string]string{workKey: a.work}
		maps.Copy(shown, op.Metadata)
		op.Metadata = shown
	}
	defer func() {
		if lease != nil {
			defer lease.setObserved()
		}
		l.end(a.ctx, op, a.start)
	}()

	out := a.contend()
	lease, err = out.lease, out.err
	if busy := (*BusyError)(nil); a.work != "" && op.Blocker[workKey] == a.work && errors.As(err, &busy) {
		busy.SameID = true
	}
	op.Err = err
	op.Outcome = OutcomeOf(err)
	switch {
	case lease != nil:
		op.Outcome, op.Fence, op.Handoff = OutcomeAcquired, lease.Fence(), cmp.Or(a.handoff, HandoffNone)
	case op.Outcome == OutcomeTimeout && a.attempts == 1:
		op.Outcome = OutcomeBusy
	}
	return lease, err
}
