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
	errNotEnded  = failedWrite("release", errCallDidNotReturn)
	errByClose   = fmt.Errorf("%w: %w", ErrNotHeld, ErrClosed)
	errReplayed  = errors.New("the request was sent more than once, and a copy found no lock: " +
		"either another copy has released the lock, or the lease was lost before; check the work if that matters")
	errLate = errors.New("the answer came after the deadline of the lease, and there was no lock: " +
		"either the lock has expired since, or the lease was lost before; " +
		"check whether a method of the Observer blocks")
)

// releaseGrace is how long a Release whose ctx has ended still waits for the answer. A healthy backend
// answers within it.
const releaseGrace = 20 * time.Millisecond

// releaseLimit bounds a release that gets no answer. What follows is left to the background.
const releaseLimit = 5 * time.Second

// leastRelease is how long a release may take at least, however little is left of the lease.
const leastRelease = 100 * time.Millisecond

// release ends the lease for the given reason, errReleased or, without a caller, another one.
func (le *Lease) release(ctx context.Context, reason error) (err error) {
	g := le.grant
	counted := g.locker.workBegins() // before its state changes, so that Close waits for it
	if counted {
		defer g.locker.workEnds()
	}
	le.drain(ctx)
	at := time.Now()
	g.mu.Lock()
	switch first := le.state == releasing; {
	case first && le.expiredLocked(trust.At(at)):
		err = le.lossLocked(errDeadline)
	case le.state == lost:
		err = le.endReason
	case le.removed:
		err = le.unknown
	case le.underway:
		ended := make(chan error, 1)
		le.others = append(le.others, ended)
		g.mu.Unlock()
		return le.awaitRelease(ctx, ended)
	case !counted: // Close has ended the lease
		err = ErrClosed
	default:
		le.underway = true
		g.mu.Unlock()
		err = errNotEnded // unless finishRelease returns
		defer func() { le.releaseEnded(err) }()
		return le.finishRelease(ctx, first, at, reason)
	}
	g.mu.Unlock()
	return err
}

// releaseEnded lets the calls of Release continue that wait for the one under way, which ended with err.
func (le *Lease) releaseEnded(err error) {
	le.grant.mu.Lock()
	defer le.grant.mu.Unlock()
	for _, other := range le.others {
		other <- err
	}
	le.underway, le.others = false, nil
}

// finishRelease ends the lease on this side, unless an earlier call has. Then it hands the lock on within the
// process, or releases the lock in the backend.
// ⚑ The lease ends before the Observer's Start: a hook that blocks must not keep the lease renewed.
func (le *Lease) finishRelease(ctx context.Context, first bool, at time.Time, reason error) error {
	l := le.grant.locker
	op := &Operation{Name: OpRelease, Backend: l.caps.Backend, Key: le.Key(), Fence: le.Fence()}
	var handed bool
	var err error
	if first {
		if handed, err = le.finish(at, reason); handed {
			op.Handoff = HandoffLocal
		}
		if op.Ended = err == nil; op.Ended { // else the loss has
			op.Held = at.Sub(le.acquired)
		}
	}
	if start := time.Now(); reason == errReleased {
		ctx = l.begin(ctx, op)
		defer l.end(ctx, op, start)
	} else { // no caller
		op.Began = start
		defer func() {
			op.Wait = time.Since(op.Began)
			le.grant.mu.Lock()
			defer le.grant.mu.Unlock()
			le.reportLocked(ctx, op)
		}()
	}
	if err == nil && !handed {
		err = le.remove(ctx, op)
	}
	return op.complete(err)
}

// awaitRelease waits for a release that another call has under way.
func (le *Lease) awaitRelease(ctx context.Context, ended <-chan error) (err error) {
	lingers, cancel := lingering(ctx, 0)
	defer cancel()
	select {
	case err = <-ended:
	case <-lingers.Done():
		return failedWrite("release", fmt.Errorf("another call of Release is still under way: %w", context.Cause(lingers)))
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// The context is that of the other caller.
		return failedWrite("release", fmt.Errorf("another call of Release ended: %v", err))
	}
	return err
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
	timer := time.NewTimer(atLeastOneTick(le.grant.ttl))
	defer timer.Stop()
	select {
	case le.guard <- struct{}{}: // kept, too
	case <-timer.C:
	case <-ctx.Done():
	case <-le.ctx.Done():
	}
}

// finish ends the lease on this side, unless it was lost. It hands the lock off within the process if
// it can.
func (le *Lease) finish(at time.Time, reason error) (handed bool, err error) {
	g := le.grant
	g.mu.Lock()
	defer g.mu.Unlock()
	if le.state == lost {
		return false, le.endReason
	}
	le.state = released
	le.endReason = reason
	le.cancel(ErrNotHeld)
	accept := func(a *acquisition) bool { return g.mayHandOffLocked(at, a.op.TTL) }
	if next := g.queue.Next(at, accept); next != nil {
		le.until = at.Add(g.trust.Left(trust.At(at)))
		g.handOffLocked(next, at)
		le.removed = true
		return true, nil
	}
	// ⚑ No renewal once the removal is sent. The timer goes on: the Observer or the driver may block.
	g.pauseRenewalLocked()
	g.locker.forget(g)
	return false, nil
}

// remove releases the lock in the backend, unless the last write has. If that fails, the clean-up
// goes on.
func (le *Lease) remove(ctx context.Context, op *Operation) (err error) {
	g, l := le.grant, le.grant.locker
	lingers, cancel := lingering(ctx, releaseGrace)
	defer cancel()
	g.mu.Lock()
	left, freed, again := g.trust.Left(trust.Now()), le.freed, le.asked
	le.asked = true
	g.mu.Unlock()
	request := driver.ReleaseRequest{Name: g.name, Owner: g.owner}
	if g.copiesMayArrive {
		// ⚑ A copy of the acquire may arrive after the release, when others have been released too.
		request.Tombstone = cleanup.Tombstone(g.ttl)
	}
	var reply driver.ReleaseReply
	err = errCallDidNotReturn // unless the driver returns
	defer func() {
		defer g.queue.End(false)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stopLocked()
		if err == nil {
			late := g.trust.Over(trust.Now()) // ⚑ the request may have waited with this process
			err = le.removedLocked(removal{reply.Released, late, reply.Replayed || again || le.leaving})
			return
		}
		l.cleaner.Add(request, g.ttl, cleanup.MinPause)
		if lingers.Err() != nil { // the caller has left, so the backend may be well
			err = failedWrite("release",
				fmt.Errorf("no answer yet, it goes on in the background: %w", context.Cause(lingers)))
			return
		}
		err = failedWrite("release", err)
		if !le.logged {
			le.logged = true
			l.log(le.ctx, slog.LevelWarn, "distlock: a lock could not be released; "+
				"its clean-up goes on in the background, and the lock ends with its TTL",
				g.name.Key, "fence", le.Fence(), "ttl_ms", g.ttl.Milliseconds(), "error", err)
		}
	}()
	if freed {
		reply.Released = true
		return nil
	}
	op.Attempts++
	reply, err = callDriver(lingers, min(releaseLimit, max(left, leastRelease)),
		func(ctx context.Context) (driver.ReleaseReply, error) { return l.driver.Release(ctx, request) })
	return err
}

// removal is the backend's answer to a request that releases a lock.
type removal struct {
	released bool // the backend has released the lock
	late     bool // it came after the deadline
	repeated bool // the request was sent more than once
}

// err is the error of the release. It is errNotMine if the lease was lost before.
func (r removal) err() error {
	switch {
	case r.released:
		return nil
	case r.late: // ⚑ no loss: the lease was ended in time, and has run out since
		return failedWrite("release", errLate)
	case r.repeated: // ⚑ the backend may have lost the lock in a failover, before any copy came
		return failedWrite("release", errReplayed)
	default:
		return errNotMine
	}
}

// removedLocked ends a release that was answered.
func (le *Lease) removedLocked(r removal) error {
	if err := r.err(); err != errNotMine {
		le.removed, le.unknown = true, err
		return err
	}
	le.state = lost
	le.endReason = fmt.Errorf("%w: %w", ErrLost, errNotMine)
	return le.endReason
}

// lingering returns a context that ends a moment after ctx does, with the error of ctx as its cause. ⚑ A
// release ends the contexts of its lease. Of such a ctx, only the deadline counts then.
func lingering(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { // in a goroutine of its own
		wait, why := grace, ctxError(ctx)
		if context.Cause(ctx) == ErrNotHeld {
			deadline, ok := ctx.Deadline()
			if !ok {
				return
			}
			wait, why = wait+time.Until(deadline), context.DeadlineExceeded
		}
		if wait > 0 {
			timer := time.NewTimer(atLeastOneTick(wait))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-late.Done():
			}
		}
		cancel(why)
	})
	return late, func() { stop(); cancel(nil) }
}
