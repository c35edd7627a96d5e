package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// quickly is how soon a lock service must have answered for the next call to be made in the caller's goroutine.
	quickly = 5 * time.Millisecond
	// patientFor is how long such a call may take. It bounds by how much a caller whose ctx ends meanwhile is late.
	patientFor = 15 * time.Millisecond
)

// direct makes a call that may be sent twice. While the lock service answers quickly and the driver is punctual, the
// call is made here and now: to hand it to another goroutine and back can cost as much as the call. If that takes too
// long it is made again, detached, for as long as the context that until makes allows. The bool says whether it was made
// more than once, so that a copy may still be under way.
func direct[T any](ctx context.Context, until func() context.Context, l *Locker, limit time.Duration, call func(context.Context) (T, error), late func(T, error)) (value T, again bool, err error) {
	start := time.Now()
	if l.punctual != nil && l.quick.Load() && ctx.Err() == nil && l.punctual.Ready() {
		deadline := start.Add(min(limit, patientFor))
		if own, ok := ctx.Deadline(); ok {
			deadline = earlier(deadline, own.Add(time.Millisecond)) // when ctx says so itself
		}
		hurried := l.alarms.Begin(ctx, deadline)
		value, err = call(hurried)
		l.alarms.End(hurried)
		// By the clock: a connection may notice its deadline before the context's timer does.
		tooLate := ctx.Err() != nil || !time.Now().Before(deadline)
		if tooLate || time.Since(start) >= quickly {
			l.quick.Store(false)
		}
		switch {
		case err == nil || !tooLate:
			return value, false, err
		case ctx.Err() != nil:
			late(value, err)
			return value, false, errLeft
		}
		again = true
		start = time.Now()
	}
	value, err = detached(until(), l, limit, call, late)
	l.quick.Store(err == nil && time.Since(start) < quickly)
	return value, again, err
}

// detached runs call in a goroutine of its own, with ctx's values but not its cancellation, for at most limit. Clients
// of lock services may sit in a read long after their context has ended, and cancelling some of them costs a connection,
// so the caller leaves and the call goes on: if ctx ends first, detached returns errLeft at once, and late is given the
// result when it comes. Exactly one of the two sees the result.
func detached[T any](ctx context.Context, l *Locker, limit time.Duration, call func(context.Context) (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var (
		answer  = make(chan result, 1)
		settled atomic.Bool // by whoever comes first: the answer or the caller's leaving
		none    T
	)
	if !l.begin() {
		return none, ErrClosed
	}
	l.workers.run(func() {
		defer l.end()
		start := time.Now()
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		value, err := call(callCtx)
		cancel()
		err = ownDeadline(err, limit, time.Since(start))
		if settled.CompareAndSwap(false, true) {
			answer <- result{value, err}
		} else {
			late(value, err)
		}
	})
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		if settled.CompareAndSwap(false, true) {
			return none, errLeft
		}
		r := <-answer // it came in the same moment
		return r.value, r.err
	}
}

// ownDeadline makes a text of the error of a deadline that is the Locker's, or one of the client's own that came sooner: the
// caller's ctx may have none.
func ownDeadline(err error, limit, took time.Duration) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case took < limit:
		return fmt.Errorf("no answer within the time-outs of the client: %v", err)
	default:
		return fmt.Errorf("no answer within %s: %v", limit, err)
	}
}

func noAnswer(limit time.Duration) string {
	return fmt.Sprintf("no answer within %s; check the lock service and the network to it", limit)
}

// errLeft says that the caller's ctx ended before the lock service had answered.
var errLeft = errors.New("no answer yet")

// left is the error of a call whose caller has left, and has left no effect behind.
func left(operation string, ctx context.Context) error {
	return &leftError{fmt.Errorf("distlock: %s: %w", operation, ended(ctx))}
}

// leftError tells the deadline of a caller from one of the work under a lock.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// ended is the error of an ended context. Its cause is text alone: it may be the loss of another lease.
func ended(ctx context.Context) error {
	switch cause := context.Cause(ctx); cause {
	case ctx.Err():
		return ctx.Err()
	case ErrLost: // in words that do not repeat those of an error around this one
		return fmt.Errorf("%w (the lease of this context was lost)", ctx.Err())
	default:
		return fmt.Errorf("%w (%v)", ctx.Err(), cause)
	}
}
