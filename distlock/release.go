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
)

var (
	errReleased  = fmt.Errorf("%w: it was released", ErrNotHeld)
	errReleasing = fmt.Errorf("%w: it is being released, so no step begins", ErrNotHeld)
	errByClose   = fmt.Errorf("%w: %w", ErrNotHeld, ErrClosed)
	errNoLock    = errors.New("there was no lock: either a copy of the request has released the lock, " +
		"or the lock has expired since the deadline, or the lease was lost before; check the work if that matters")
)

// releaseGrace is how long a Release whose ctx has ended still waits for the answer. A healthy backend
// answers within it.
const releaseGrace = 20 * time.Millisecond

// releaseLimit bounds a release that gets no answer. What follows is left to the background.
const releaseLimit = 5 * time.Second

// leastRelease is how long a release may take at least, however little is left of the lease.
const leastRelease = 100 * time.Millisecond

// release ends the lease for the given reason, errReleased or, without a caller, another one. It ends the
// lease on this side, and hands the lock off within the process or removes it from the backend.
// ⚑ The lease ends before the Observer's Start: a hook that blocks must not keep the lease renewed.
func (le *Lease) release(ctx context.Context, reason error) error {
	l := le.grant.locker
	counted := l.workBegins() // before its state changes, so that Close waits for it
	if counted {
		defer l.workEnds()
	}
	le.drain(ctx)
	op := &Operation{Name: OpRelease, Key: le.Key(), Fence: le.Fence()}
	if err := le.awaitOther(ctx); err != nil {
		return err
	}
	done, err := le.endHere(op, reason, counted)
	if done || op.Handoff == HandoffLocal { // nothing is left to remove
		<-le.removal
	}
	if done {
		return err
	}
	if start := time.Now(); reason == errReleased {
		ctx = l.begin(ctx, op)
		defer l.end(ctx, op, start)
	} else { // no caller
		op.Began = start
		defer func() {
			op.Wait = time.Since(op.Began)
			le.report(ctx, op, true)
		}()
	}
	if op.Handoff == HandoffLocal {
		return op.complete(nil)
	}
	return op.complete(le.remove(ctx, op))
}

// drain lets no step begin any more, and waits for the step that runs: while ctx lasts, for at most one
// TTL, and not inside that step. Until drain returns, the lease is held and renewed. The first of several
// calls that goes on ends the context of the lease, and so the wait of the others.
func (le *Lease) drain(ctx context.Context) {
	le.grant.mu.Lock()
	if le.state == held {
		le.state = releasing
	}
	le.grant.mu.Unlock()
	select {
	case le.guard <- struct{}{}: // kept: no guarded call starts any more
		return
	default:
	}
	if inGuard(ctx, le) || le.Err() != nil {
		return
	}
	ctx, leave := afterAsk(ctx)
	defer leave()
	timer := time.NewTimer(atLeastOneTick(le.grant.ttl))
	defer timer.Stop()
	select {
	case le.guard <- struct{}{}: // kept, too
	case <-timer.C:
	case <-ctx.Done():
	case <-le.ctx.Done():
	}
}

// endHere ends the lease on this side, unless an earlier call has. It reports whether the release is
// done: the lease was lost, or another call has released the lock. Otherwise the lock is handed
// off, or this call is the one to remove it.
func (le *Lease) endHere(op *Operation, reason error, counted bool) (done bool, err error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now()
	switch {
	case le.state == lost:
		return true, le.endReason
	case le.state == removed:
		return true, le.removalErr
	case le.state == released && !counted: // Close has ended the lease
		return true, ErrClosed
	case le.state == released: // an earlier call had no answer
		return false, nil
	case g.trust.Over(trust.At(at)) && le.lastWrite != releasedByWrite:
		return true, le.lossLocked(errDeadline)
	}
	op.Ended, op.Held = true, at.Sub(le.acquired)
	if le.endLocked(at, reason) {
		op.Handoff = HandoffLocal
	}
	return false, nil
}

// awaitOther takes the token of removal. It waits for another call of Release while ctx lasts.
func (le *Lease) awaitOther(ctx context.Context) error {
	select {
	case le.removal <- struct{}{}: // also if ctx has ended
		return nil
	default:
	}
	lingers, cancel := lingering(ctx, 0)
	defer cancel()
	select {
	case le.removal <- struct{}{}:
		return nil
	case <-lingers.Done():
		return failedWrite("release", fmt.Errorf("another call of Release is still under way: %w", context.Cause(lingers)))
	}
}

// endLocked ends a held lease. It hands the lock off within the process if it can.
func (le *Lease) endLocked(at time.Time, reason error) (handed bool) {
	g := le.grant
	le.state, le.endReason = released, reason
	le.cancel(ErrNotHeld)
	accept := func(a *acquisition, age time.Duration) bool { return g.mayHandOffLocked(at, age, a) }
	if next := g.inQueue.Next(at, accept); next != nil {
		le.until = at.Add(g.trust.Left(trust.At(at)))
		g.handOffLocked(next, at)
		le.state = removed
		return true
	}
	// ⚑ No renewal once the removal is sent. The timer goes on: the Observer or the driver may block.
	g.pauseRenewalLocked()
	g.locker.forget(g)
	return false
}

// handOffLocked makes the next waiter of the process the holder.
func (g *grant) handOffLocked(next *waiter, at time.Time) {
	before := g.holder
	g.holder = g.newLease(next.Caller, before.Fence()+1, at)
	if g.cameLate(next.Caller) { // ⚑ else a Stop before it would end it
		g.holder.since = next.Caller.awaited.Load()
	}
	next.Caller.op.Handoff, next.Caller.op.Blocker = HandoffLocal, before.metadata
	g.inQueue.HandOff(next, outcome{lease: g.holder}, g.holder.answer())
}

// remove releases the lock in the backend, unless the last write has. If that fails, the clean-up
// goes on.
func (le *Lease) remove(ctx context.Context, op *Operation) (err error) {
	g, l := le.grant, le.grant.locker
	lingers, cancel := lingering(ctx, releaseGrace)
	defer cancel()
	request := driver.ReleaseRequest{Name: g.name, Owner: g.owner}
	if g.copiesMayArrive {
		// ⚑ A copy of the acquire may arrive after the release, when others have been released too.
		request.Tombstone = cleanup.Tombstone(g.ttl)
	}
	g.mu.Lock()
	left, byWrite := g.trust.Left(trust.Now()), le.lastWrite == releasedByWrite
	g.mu.Unlock()
	var reply driver.ReleaseReply
	err = errCallDidNotReturn // unless the driver returns
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stopLocked()
		if err == nil {
			late := g.trust.Over(trust.Now()) // ⚑ the request may have waited with this process
			repeated := reply.Replayed || !op.Ended || le.lastWrite != noLastWrite
			err = le.removedLocked(reply.Released, late || repeated)
		} else {
			l.cleaner.Add(request, max(g.ttl, g.changed), cleanup.MinPause)
			err = le.notRemoved(op, lingers, err)
		}
		g.inQueue.End(false)
		<-le.removal
	}()
	if byWrite {
		reply.Released = true
		return nil
	}
	op.Attempts++
	reply, err = callDriver(lingers, min(releaseLimit, max(left, leastRelease)),
		func(ctx context.Context) (driver.ReleaseReply, error) { return l.driver.Release(ctx, request) })
	return err
}

// removedLocked ends a release that was answered. If there was no lock, the lease was lost before, unless the
// lock may have ended since: with its deadline, or by an earlier request.
func (le *Lease) removedLocked(released, mayHaveEnded bool) error {
	if !released && !mayHaveEnded {
		le.state, le.endReason = lost, fmt.Errorf("%w: %w", ErrLost, errNotMine)
		return le.endReason
	}
	le.state = removed
	if !released { // ⚑ the backend may also have lost the lock in a failover, before any copy came
		le.removalErr = failedWrite("release", errNoLock)
	}
	return le.removalErr
}

// notRemoved returns the error of a release that was not answered. One line says so.
func (le *Lease) notRemoved(op *Operation, caller context.Context, err error) error {
	if caller.Err() != nil { // the backend may be well
		return failedWrite("release", fmt.Errorf("no answer yet, it goes on in the background: %w", context.Cause(caller)))
	}
	err = failedWrite("release", err)
	if g := le.grant; op.Ended {
		g.locker.log(le.ctx, slog.LevelWarn, "distlock: a lock could not be released; "+
			"its clean-up goes on in the background, and the lock ends with its TTL",
			g.name.Key, "fence", le.Fence(), "ttl_ms", max(g.ttl, g.changed).Milliseconds(), "error", err)
	}
	return err
}

// lingering returns a context that ends a moment after ctx does, with the error of ctx as its cause. ⚑ A
// release ends the contexts of its lease, and so does an ask. Of such a ctx, only the deadline counts then.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { // in a goroutine of its own
		wait, why := grace, ctxError(ctx)
		if cause := context.Cause(ctx); cause == ErrNotHeld || cause == ErrInterrupted {
			deadline, ok := ctx.Deadline()
			if !ok {
				return
			}
			wait, why = wait+time.Until(deadline), context.DeadlineExceeded
		}
		if wait <= 0 {
			cancel(why)
			return
		}
		timer := time.AfterFunc(atLeastOneTick(wait), func() { cancel(why) })
		context.AfterFunc(late, func() { timer.Stop() })
	})
	return late, func() { stop(); cancel(nil) }
}
