package distlock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

const (
	// quickly is how soon a lock service must have answered for the next call to be made in the caller's goroutine.
	quickly = 5 * time.Millisecond
	// patientFor is how long such a call may take. It bounds by how much a caller whose ctx ends meanwhile is late.
	patientFor = 15 * time.Millisecond
	// lateness is how long a caller waits beyond the limit of a call. A driver that honours its context
	// returns within that time, with an error that is more precise than the limit.
	lateness = 20 * time.Millisecond
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
		func() {
			hurried := l.alarms.Begin(ctx, deadline)
			returned := false
			defer func() {
				l.alarms.End(hurried)
				if !returned { // but panicked
					late(value, errEnded)
				}
			}()
			value, err = call(hurried)
			returned = true
		}()
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
		again = driver.MayHaveEffect(err)
		start = time.Now()
	}
	value, err = detached(until(), l, limit, call, late)
	l.quick.Store(err == nil && time.Since(start) < quickly)
	if again && err != nil && !driver.MayHaveEffect(err) {
		err = fmt.Errorf("%w: %w", driver.ErrReplayed, err)
	}
	return value, again, err
}

// detached runs call in a goroutine of its own, with ctx's values but not its cancellation, for at most limit. Clients
// of lock services may sit in a read long after their context has ended, and cancelling some of them costs a connection,
// so the caller leaves and the call goes on: if ctx ends first, detached returns errLeft at once.
// If the driver ignores the limit, detached returns another error for which unsettled is true. In
// both cases late gets the result when it comes. Exactly one of caller and late gets the result.
//
// If the driver panics, or ends its goroutine, late gets errEnded. A panic reaches the caller. If the
// caller has left, the panic ends the process.
func detached[T any](ctx context.Context, l *Locker, limit time.Duration, call func(context.Context) (T, error), late func(T, error)) (T, error) {
	type result struct {
		value    T
		err      error
		panicked *driverPanic
	}
	var (
		answer  = make(chan result, 1)
		settled atomic.Bool // by whoever comes first: the answer or the caller's leaving
		none    T
	)
	if !l.begin() {
		return none, ErrClosed
	}
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	l.workers.run(func() {
		defer l.end()
		start := time.Now()
		returned, r := false, result{err: errEnded}
		defer func() {
			if v := recover(); v != nil {
				r.panicked = &driverPanic{v, debug.Stack()}
			}
			waits := settled.CompareAndSwap(false, true)
			if r.panicked != nil && !waits {
				panic(r.panicked)
			}
			if !returned || !waits {
				late(r.value, r.err)
			}
			answer <- r
			cancel()
		}()
		r.value, r.err = call(callCtx)
		r.err = ownDeadline(r.err, limit, time.Since(start))
		returned = true
	})
	var (
		r    result
		left error
	)
	select {
	case r = <-answer:
	case <-ctx.Done():
		left = errLeft
	case <-callCtx.Done():
		select {
		case r = <-answer:
		case <-ctx.Done():
			left = errLeft
		case <-time.After(lateness):
			left = unsettledError(noAnswer(limit))
		}
	}
	if left != nil {
		if settled.CompareAndSwap(false, true) {
			return none, left
		}
		r = <-answer // it came in the same moment
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.value, r.err
}

// driverPanic is a panic in a driver's call, in the goroutine of the call.
type driverPanic struct {
	value any
	stack []byte
}

func (p *driverPanic) Error() string {
	return fmt.Sprintf("panic in a driver's call: %v\n\n%s", p.value, p.stack)
}

func (p *driverPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// ownDeadline gives an error of a deadline that is the Locker's, or the client's own, a text that
// names the limit. The error then matches no error of a context: the caller's ctx may have no deadline.
func ownDeadline(err error, limit, took time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	text := noAnswer(limit)
	if took < limit {
		text = "no answer within the timeouts of the client; check the lock service and the network to it"
	}
	if detail := err.Error(); !strings.Contains(detail, context.DeadlineExceeded.Error()) {
		text += ": " + detail
	}
	return &deadlineError{err, text}
}

// deadlineError gives the error of a deadline another text. It matches whatever that error matches,
// except the errors of contexts.
type deadlineError struct {
	err  error
	text string
}

func (e *deadlineError) Error() string { return e.text }

func (e *deadlineError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e *deadlineError) As(target any) bool { return errors.As(e.err, target) }

func noAnswer(limit time.Duration) string {
	return fmt.Sprintf("no answer within %s; check the lock service and the network to it", limit)
}

// unsettledError is the error of a call whose result late gets, now or when it comes.
type unsettledError string

func (e unsettledError) Error() string { return string(e) }

func unsettled(err error) bool {
	var e unsettledError
	return errors.As(err, &e)
}

var (
	// errLeft says that the caller's ctx ended before the lock service had answered.
	errLeft error = unsettledError("no answer yet")
	// errEnded says that the driver ended the goroutine of its call, as t.Fatal does in a test.
	errEnded error = unsettledError("the driver's call ended its goroutine and gave no answer; mend the driver")
)

// left is the error of a call without effect whose caller has left.
func left(operation string, ctx context.Context) error {
	return &leftError{fmt.Errorf("distlock: %s: %w", operation, ended(ctx))}
}

// leftError marks the error of a caller's ctx for OutcomeOf: the work under a lock may fail with such
// an error, too.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// ended is the error of an ended context. Its cause is text alone: it may be the loss of another lease.
func ended(ctx context.Context) error {
	switch cause := context.Cause(ctx); cause {
	case ctx.Err():
		return ctx.Err()
	case ErrLost: // its text may stand in the error around this one
		return fmt.Errorf("%w (the lease of this context was lost)", ctx.Err())
	default:
		return fmt.Errorf("%w (%v)", ctx.Err(), cause)
	}
}
