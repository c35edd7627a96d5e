// Package calls makes calls of a backend's driver that their caller can leave.
//
// A client of a backend may sit in a read long after its context has ended. So each call runs in a
// goroutine of its own, and its caller leaves as soon as its own context ends.
package calls

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// grace is how long after the limit of a call its caller still waits. A driver that honours its
// context returns within that time, with an error that is more precise than the limit.
const grace = 20 * time.Millisecond

// Do makes a call in a goroutine of its own, and waits for the result. If ctx ends first, Do returns
// ErrLeft at once, and the call goes on.
//
// With a limit, the call has the values of ctx but not its cancellation, which can cost a connection,
// and its context ends after the limit. If the driver ignores that, Do returns another error for which
// Unsettled is true. Limit 0 means no limit, and the call has ctx itself.
//
// Exactly one of the caller and late gets the result: late if Do returns an error for which Unsettled
// is true. If the call ends its goroutine, late gets that error too. A panic of the call reaches the
// caller, and late gets an error. If the caller has left, the panic ends the process.
//
// Do calls over when the call and late have ended. The owner of the goroutine can then stop waiting.
func Do[T any](
	ctx context.Context, limit time.Duration, call func(context.Context) (T, error), late func(T, error), over func(),
) (T, error) {
	type result struct {
		value    T
		err      error
		panicked *callPanic
	}
	var (
		answer  = make(chan result, 1)
		settled atomic.Bool // by the first of the answer and the caller's leaving
		none    T
	)
	callCtx, cancel := ctx, func() {}
	if limit > 0 {
		callCtx, cancel = context.WithTimeout(context.WithoutCancel(ctx), limit)
	}
	go func() {
		start := time.Now()
		returned, r := false, result{err: errNoReturn}
		defer func() {
			defer over()
			if v := recover(); v != nil {
				r.panicked = &callPanic{v, debug.Stack()}
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
		if limit > 0 {
			r.err = OwnDeadline(r.err, limit, time.Since(start))
		}
		returned = true
	}()
	var (
		r    result
		left error
	)
	select {
	case r = <-answer:
	case <-ctx.Done():
		left = ErrLeft
	case <-callCtx.Done():
		select {
		case r = <-answer:
		case <-ctx.Done():
			left = ErrLeft
		case <-time.After(grace):
			left = unsettledError(NoAnswer(limit))
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

// Direct is Do for a call that returns as soon as its context ends, in the goroutine of the caller. If
// ctx ends first, Direct returns ErrLeft, and late gets the error of the call. If the call panics or
// ends its goroutine, late gets an error. Limit is positive.
func Direct[T any](
	ctx context.Context, limit time.Duration, call func(context.Context) (T, error), late func(T, error),
) (value T, err error) {
	start, returned := time.Now(), false
	callCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if !returned {
			late(value, errNoReturn)
		}
	}()
	value, err = call(callCtx)
	returned = true
	if err != nil && ctx.Err() != nil { // the error may be that of an earlier copy
		late(value, err)
		return value, ErrLeft
	}
	return value, OwnDeadline(err, limit, time.Since(start))
}

// callPanic is a panic of a call, with the stack of the call's goroutine.
type callPanic struct {
	value any
	stack []byte
}

func (p *callPanic) Error() string {
	return fmt.Sprintf("panic in a driver's call: %v\n\n%s", p.value, p.stack)
}

func (p *callPanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}
