package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

type leaseKey struct {
	locker *Locker
	key    string
}

func (le *Lease) contextKey() leaseKey { return leaseKey{le.grant.locker, le.grant.name.Key} }

// FromContext returns the lease of the context of Do, Turn or a lease.
func (l *Locker) FromContext(ctx context.Context, key string) (*Lease, bool) {
	lease, ok := ctx.Value(leaseKey{l, key}).(*Lease)
	return lease, ok
}

// Do acquires the lock on key, runs fn, and releases it, also after a panic. The context of fn carries
// the lease, and ends with ctx or as [Lease.Context]. A Do inside fn for the same key joins it, also under a
// detached context. If the lease has ended, or Acquire fails, fn is not run. The error of fn is
// joined to [ErrInterrupted], any result to [ErrLost]. A failed release is logged.
func (l *Locker) Do(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.do(ctx, key, fn, l.Acquire, opts)
}

// TryDo is Do that acquires with [Locker.TryAcquire].
func (l *Locker) TryDo(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.do(ctx, key, fn, l.TryAcquire, opts)
}

func (l *Locker) do(ctx context.Context, key string, fn func(ctx context.Context) error,
	acquire func(context.Context, string, ...CallOption) (*Lease, error), opts []CallOption) error {
	if lease, ok := l.FromContext(ctx, key); ok {
		if err := lease.admits(ctx); err != nil {
			return err
		}
		return lease.run(ctx, fn)
	}
	lease, err := acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	return lease.do(ctx, fn)
}

// do runs fn under the lease, and releases the lock.
func (le *Lease) do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	defer func() {
		// The backend may know of a loss before the deadline has passed, or after a suspend. Any other
		// failure is no failure of fn.
		if removal := le.Release(ctx); errors.Is(removal, ErrLost) {
			err = withLoss(err, removal)
		}
	}()
	return le.run(ctx, fn)
}

// Guard runs fn, a write, as one step under the lease. Steps run one after the other, and none
// begins once the lease is being released. The context of fn is as in Do, but no Interrupt of this
// lease ends it; a Guard with it is part of the step. The error of fn is joined to [ErrLost] if the
// lease was lost while fn ran. If fn was not run, the error is ErrLost, [ErrNotHeld] or that of ctx.
func (le *Lease) Guard(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := le.admits(ctx); err != nil {
		return err
	}
	ctx, leave := afterAsk(ctx)
	defer leave()
	if inGuard(ctx, le) && ctx.Err() == nil {
		return le.run(ctx, fn)
	}
	if ctx.Err() != nil && context.Cause(ctx) != ErrInterrupted { // select would leave it to chance
		return fmt.Errorf("distlock: the step under the lease was not begun: %w", ctxError(ctx))
	}
	select {
	case le.guard <- struct{}{}:
		of, _ := le.grant.locker.FromContext(ctx, le.Key())
		if of == le && context.Cause(le.work) == ErrInterrupted || context.Cause(ctx) == ErrInterrupted {
			ctx, leave = withoutAsk(ctx) // ⚑ ctx may end a moment after the work
			defer leave()
		}
	case <-ctx.Done():
		if context.Cause(ctx) == ErrInterrupted { // asked in this moment
			return le.Guard(ctx, fn)
		}
		return fmt.Errorf("distlock: waiting for another step under the lease: %w", ctxError(ctx))
	case <-le.ctx.Done():
		return le.Err()
	}
	defer func() {
		<-le.guard
		le.grant.mu.Lock()
		defer le.grant.mu.Unlock()
		le.endAskedLocked()
	}()
	if err := le.admits(ctx); err != nil { // ended while this step waited
		return err
	}
	within := new(step)
	defer within.ended.Store(true)
	return le.run(context.WithValue(ctx, guardKey{le}, within), fn)
}

// afterAsk returns the context of a step that begins under ctx, which an ask may have ended: that of this
// lease or of one around it.
func afterAsk(ctx context.Context) (context.Context, context.CancelFunc) {
	if context.Cause(ctx) != ErrInterrupted {
		return ctx, func() {}
	}
	return withoutAsk(ctx)
}

// withoutAsk returns a context that ends as ctx does, but for an ask. Its deadline stays, also if an ask
// has ended ctx.
//
// ⚑ It ends a moment after ctx. Without an ask, a step uses ctx itself: after its caller has left, a step
// sends no second request.
func withoutAsk(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, end := context.WithoutCancel(ctx), func() {}
	if deadline, ok := ctx.Deadline(); ok {
		kept, end = context.WithDeadline(kept, deadline)
	}
	kept, cancel := context.WithCancelCause(kept)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); cause != ErrInterrupted && ctx.Err() != context.DeadlineExceeded {
			cancel(cause)
		}
	})
	return kept, func() { stop(); cancel(nil); end() }
}

// askedLocked ends the work of a lease. The lease lasts on, and is renewed no more.
func (le *Lease) askedLocked() {
	le.asked, le.lastTTL = true, true
	le.grant.pauseRenewalLocked()
	le.endAskedLocked()
}

// endAskedLocked ends the context of the work of a lease that was asked, unless a step runs. ⚑ A write that
// is cut off has an unknown outcome.
func (le *Lease) endAskedLocked() {
	if !le.asked {
		return
	}
	select {
	case le.guard <- struct{}{}:
		le.endWork(ErrInterrupted)
		<-le.guard
	default: // the end of the step calls again, or the end of the lease ends the work
	}
}

// admits is Err for work that begins. While a Release waits for a step, only that step begins more.
func (le *Lease) admits(ctx context.Context) error {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	err := le.errLocked()
	if err == nil && le.state == releasing && !inGuard(ctx, le) {
		return errReleasing
	}
	return err
}

type guardKey struct{ lease *Lease }

// step is one that runs, or has ended: a goroutine that it has left behind is in no step any more.
type step struct{ ended atomic.Bool }

func inGuard(ctx context.Context, le *Lease) bool {
	within, _ := ctx.Value(guardKey{le}).(*step)
	return within != nil && !within.ended.Load()
}

// join returns ctx with the lease in it, which also ends with ends, a context of the lease.
func (le *Lease) join(ctx, ends context.Context) (context.Context, context.CancelFunc) {
	if key := any(le.contextKey()); ctx.Value(key) != le {
		ctx = context.WithValue(ctx, key, le)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if ends.Err() != nil { // by the time it is returned, not some time after
		cancel(context.Cause(ends))
	}
	stop := context.AfterFunc(ends, func() { cancel(context.Cause(ends)) })
	return ctx, func() { stop(); cancel(nil) }
}

// run runs fn under the lease, and joins an interruption of the work or a loss of the lease to its error.
func (le *Lease) run(ctx context.Context, fn func(ctx context.Context) error) error {
	ends := le.work
	if inGuard(ctx, le) {
		ends = le.ctx
	}
	work, leave := le.join(ctx, ends)
	defer leave()
	err := fn(work)
	if err != nil && context.Cause(ends) == ErrInterrupted && !errors.Is(err, ErrInterrupted) {
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return withLoss(err, le.Err())
}

// withLoss joins the error of some work and the end of the lease it was done under. ⚑ The work has run:
// a question about the lease that got no answer is no error of the work.
func withLoss(err, gone error) error {
	switch {
	case !errors.Is(gone, ErrLost) && !errors.Is(gone, ErrClosed):
		return err // the work itself, or another caller, released it
	case err == nil, errors.Is(gone, err): // err is the bare cause of the context, and gone says why
		return gone
	case errors.Is(err, gone), errors.Is(gone, ErrLost) && errors.Is(err, ErrLost):
		return err // says so already
	default:
		return fmt.Errorf("%w: %w", gone, err)
	}
}
