package distlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/trust"
	"github.com/belugalock/belugalock/internal/calls"
)

var (
	errReleased = fmt.Errorf("%w: it was released", ErrNotHeld)
	errUnused   = fmt.Errorf("%w: the call that acquired it did not return", ErrNotHeld)
	errNotEnded = failedWrite("release", errUnwound)
	errByClose  = fmt.Errorf("%w: %w", ErrNotHeld, ErrClosed)
	errReplayed = errors.New("the request was sent more than once, and a copy found no lock: either another copy has released the lock, " +
		"or the lease was lost before; check the work if that matters")
	errLate = errors.New("the request was sent after the deadline of the lease and found no lock: either the lock has expired since, " +
		"or the lease was lost before; check whether a method of the Observer blocks")
)

// releaseGrace is how long a Release whose ctx has ended still waits for the answer: on a healthy service that is
// enough to return what really happened.
const releaseGrace = 20 * time.Millisecond

// releaseLimit bounds a release that gets no answer. What follows is left to the background.
const releaseLimit = 5 * time.Second

// leastRelease is how long a release may take at least, however little is left of the lease.
const leastRelease = 100 * time.Millisecond

// release ends the lease for the given reason, errReleased or, without a caller, another one.
func (le *Lease) release(ctx context.Context, reason error) (err error) {
	counted := le.locker.begin() // before its state changes, so that Close waits for it
	if counted {
		defer le.locker.end()
	}
	at := time.Now()
	le.mu.Lock()
	switch {
	case le.state == held && le.trust.Over(trust.At(at)):
		le.lossLocked(errDeadline)
		fallthrough
	case le.state == lost:
		defer le.mu.Unlock()
		return le.ended
	case le.state == released && le.removed:
		defer le.mu.Unlock()
		return le.unknown
	case le.releasing:
		if le.released == nil {
			le.released = make(chan struct{})
		}
		under := le.released
		le.mu.Unlock()
		return le.await(ctx, under)
	case !counted:
		le.mu.Unlock()
		_, _ = le.finish(at, reason)
		return ErrClosed
	}
	le.releasing = true
	first := le.state == held
	if first {
		le.state = releasing
	}
	le.mu.Unlock()
	err = errNotEnded // unless end returns
	defer func() { le.releaseEnded(err) }()

	if first && le.drain(ctx) {
		at = time.Now()
	}
	return le.end(ctx, first, at, reason)
}

// releaseEnded lets the calls of Release go on that wait for one that ended with err.
func (le *Lease) releaseEnded(err error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.releasing, le.failure = false, err
	if le.released != nil {
		close(le.released)
		le.released = nil
	}
}

// end ends the lease on this side, unless an earlier call has. Then it hands the lock on within the
// process, or releases the lock in the backend.
// ⚑ The lease ends before the Observer's Start: a hook that blocks must not keep the lease renewed.
func (le *Lease) end(ctx context.Context, first bool, at time.Time, reason error) error {
	l := le.locker
	op := &Operation{Name: OpRelease, Backend: l.backend, Key: le.name.Key, Fence: le.Fence(), Held: at.Sub(le.acquired)}
	var handed bool
	var err error
	if first {
		if handed, err = le.finish(at, reason); handed {
			op.Handoff = HandoffLocal
		}
	}
	if reason == errReleased {
		ctx = l.observe(ctx, op)
		defer l.opts.Observer.End(ctx, op)
	} else { // no caller
		op.Began = time.Now()
		defer func() {
			op.Wait = time.Since(op.Began)
			l.reports.operation(ctx, op, true)
		}()
	}
	if err == nil && !handed {
		op.Attempts++
		err = le.remove(ctx)
	}
	return op.end(err)
}

// await waits for a release that another call has under way.
func (le *Lease) await(ctx context.Context, under <-chan struct{}) error {
	if inGuard(ctx, le) { // which the other call may be waiting for
		return failedWrite("release", errors.New("another call of Release waits for this step of Guard and then releases the lock: end the step"))
	}
	select {
	case <-under:
	case <-ctx.Done():
		return failedWrite("release", fmt.Errorf("another call of Release is still under way: %w", ended(ctx)))
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.state == lost:
		return le.ended
	case le.removed:
		return le.unknown
	case errors.Is(le.failure, context.Canceled) || errors.Is(le.failure, context.DeadlineExceeded):
		// The context is that of the other caller.
		return failedWrite("release", fmt.Errorf("another call of Release ended: %v", le.failure))
	}
	return le.failure
}

// drain waits until no guarded call runs any more, for at most one TTL. Renewal goes on meanwhile. A caller who is in
// a hurry has the lease's context cancelled at once, which tells the guarded call to end. It reports whether that took time.
func (le *Lease) drain(ctx context.Context) bool {
	le.mu.Lock()
	guard := le.guard
	le.mu.Unlock()
	if guard == nil || inGuard(ctx, le) {
		return false
	}
	timer := time.NewTimer(positive(le.ttl))
	defer timer.Stop()
	select {
	case guard <- struct{}{}: // kept: no guarded call starts any more
	case <-timer.C:
	case <-ctx.Done():
	case <-le.ctx.Done():
	}
	return true
}

// finish ends the lease on this side, if it was not lost while it drained, and hands the lock on within the process if that
// may be.
func (le *Lease) finish(at time.Time, reason error) (handed bool, err error) {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.state == lost {
		return false, le.ended
	}
	le.state = released
	le.ended = reason
	le.cancel(ErrNotHeld)
	if next := le.tenure.hold.Release(at, func(a *acquisition) bool { return le.handsOnLocked(at, a.op.TTL) }); next != nil {
		if le.removed = le.handOff(next, at); le.removed {
			return true, nil
		}
	}
	// ⚑ Out of the schedule before the removal is sent.
	le.locker.renewals.remove(le)
	le.locker.forget(le)
	return false, nil
}

// remove tells the lock service.
func (le *Lease) remove(ctx context.Context) error {
	l := le.locker
	lingers, cancel := lingering(ctx, releaseGrace)
	defer cancel()
	le.mu.Lock()
	le.asked++
	limit := min(releaseLimit, max(le.trust.Left(trust.Now()), leastRelease))
	late := le.trust.Over(trust.Now())
	le.mu.Unlock()
	request := driver.ReleaseRequest{Name: le.name, Owner: le.owner}
	if le.doubt {
		// ⚑ A copy of the acquire may arrive after the release, when others have been released too.
		request.VoidFor = cleanup.Tombstone(le.ttl)
	}
	settle := func(reply driver.ReleaseReply, err error) error {
		l.expiries.forget(le)
		defer le.tenure.hold.End(false)
		if err != nil {
			l.cleaner.Add(request, le.ttl, cleanup.MinPause)
			err = failedWrite("release", err)
			l.log(slog.LevelWarn, "distlock: a lock could not be released; its clean-up goes on in the background, and the lock ends with its TTL",
				le.name.Key, "fence", le.Fence(), "ttl", le.ttl, "error", err)
			return err
		}
		le.mu.Lock()
		defer le.mu.Unlock()
		switch {
		case reply.Released:
			le.unknown = nil
		case le.removed: // by the answer to another request
		case late: // ⚑ no loss: the lease was ended in time, and has run out since
			le.unknown = failedWrite("release", errLate)
		case reply.Replayed || le.asked > 1:
			// ⚑ The backend may have lost the lock in a failover, before any copy came.
			le.unknown = failedWrite("release", errReplayed)
		default:
			le.state = lost
			le.ended = fmt.Errorf("%w: %w", ErrLost, errNotMine)
			return le.ended
		}
		le.removed = true
		return le.unknown
	}
	reply, err := call(lingers, l, limit,
		func(ctx context.Context) (driver.ReleaseReply, error) {
			return l.driver.Release(ctx, request)
		},
		func(reply driver.ReleaseReply, err error) { _ = settle(reply, err) })
	switch {
	case err == calls.ErrLeft:
		return failedWrite("release", fmt.Errorf("%w, it goes on in the background: %w", err, ended(ctx)))
	case calls.Unsettled(err):
		return failedWrite("release", err)
	}
	return settle(reply, err)
}

// lingering returns a context that ends a moment after ctx does.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(positive(grace), func() { cancel(context.Cause(ctx)) })
	})
	return late, func() { stop(); cancel(nil) }
}
