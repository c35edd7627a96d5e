package distlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

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

// acquisition is one call of Acquire, contending for its lock.
type acquisition struct {
	locker *Locker
	caller context.Context // what the lease's own context will be made from
	ctx    context.Context // the same with what the Observer added
	op     *Operation
	patience
	start time.Time

	req     driver.AcquireRequest
	doubt   bool       // a copy of a request may take effect later
	blocked *BusyError // the last answer, if there was one and it was busy
	heard   time.Time  // when that came, or the start
	failure error      // what came after it instead of an answer

	// giveUp ends with ctx, the wait, or the Locker, whichever comes first; see until.
	giveUp context.Context
	stop   func()
}

// contend is the one place where a lock is waited for: it asks, sleeps and asks again.
func (a *acquisition) contend() (lease *Lease, err error) {
	l := a.locker
	if lease, ok := l.FromContext(a.ctx, a.op.Key); ok {
		if err := lease.Err(); err != nil {
			return nil, err
		}
		return nil, &BusyError{Self: true, Holder: l.opts.Holder, Held: time.Since(lease.acquired)}
	}
	if a.ctx.Err() != nil {
		return nil, failed("acquire", a.ctx, errLeft)
	}
	a.req = driver.AcquireRequest{
		Name:     l.name(a.op.Key),
		Owner:    newOwner(),
		TTL:      a.op.TTL,
		Holder:   l.opts.Holder,
		Metadata: a.op.Metadata,
	}
	defer func() {
		if a.stop != nil {
			a.stop()
		}
		if lease == nil && a.doubt {
			l.cleaner.void(a.req, 0)
		}
	}()
	a.heard = a.start
	for {
		lease, busy, err := a.attempt()
		switch {
		case errors.Is(err, errLeft):
			return nil, a.gaveUp()
		case lease != nil:
			return lease, nil
		case err != nil && !a.outlives(err):
			a.failure = err
			return nil, a.interrupted()
		}
		if a.failure = err; err == nil {
			a.heard = time.Now()
			a.blocked = &BusyError{Holder: busy.Holder, Held: busy.Age, Waiters: busy.Waiters}
			a.op.Blocker = busy.Metadata
		}
		if a.op.Attempts == a.attempts {
			return nil, cmp.Or[error](a.interrupted(), a.blocked)
		}
		pause := a.delay(a.op.Attempts)
		if err == nil && a.promptly && busy.TTL >= 0 {
			pause = min(pause, busy.TTL+time.Millisecond)
		}
		if !sleep(a.until(), pause) {
			return nil, a.gaveUp()
		}
	}
}

// outlives reports whether to go on asking after err. A service that is there but cannot answer now, as while it fails
// over, is given time; so is one that had answered before: who waits in line does not lose its place to a lost connection.
// But not for ever, even if the caller would wait: after a TTL of silence there is no lease left to wait for.
func (a *acquisition) outlives(err error) bool {
	switch {
	case errors.Is(err, errVoid), errors.Is(err, driver.ErrForeign), errors.Is(err, driver.ErrRefused):
		return false
	case a.blocked == nil && !errors.Is(err, driver.ErrTemporary):
		return false
	}
	return time.Since(a.heard) < a.op.TTL
}

// attempt asks the lock service once. It returns a lease, or who holds the lock, or an error; errLeft if the caller has to
// go before the answer has come.
func (a *acquisition) attempt() (*Lease, driver.State, error) {
	l := a.locker
	a.op.Attempts++
	// ⚑ Trust counts from before the request is sent: the service's TTL starts at some later moment.
	sent := now()
	reply, again, err := direct(a.ctx, a.until, l, a.req.TTL,
		func(ctx context.Context) (driver.AcquireReply, error) { return l.driver.Acquire(ctx, a.req) },
		func(reply driver.AcquireReply, err error) {
			if reply.Outcome == driver.Granted { // in spite of the mark, or before it
				l.cleaner.void(a.req, 0)
			}
		})
	switch {
	case errors.Is(err, ErrClosed): // and so nothing was sent
		return nil, driver.State{}, err
	case errors.Is(err, errLeft):
		a.doubt = true
		return nil, driver.State{}, err
	case err != nil:
		a.doubt = a.doubt || !errors.Is(err, driver.ErrForeign)
		return nil, driver.State{}, unavailable("acquire", err)
	}
	a.doubt = a.doubt || again || reply.Replayed
	switch reply.Outcome {
	case driver.Busy:
		return nil, reply.State, nil
	case driver.Void:
		return nil, driver.State{}, unavailable("acquire", errVoid)
	}

	lease := newLease(a, sent, reply.Fence)
	if !now().before(lease.deadline) {
		a.doubt = true
		return nil, driver.State{}, unavailable("acquire", fmt.Errorf("the grant took %s to arrive, too much of the TTL of %s",
			now().sub(sent).Round(time.Millisecond), a.req.TTL))
	}
	if !l.adopt(lease) {
		a.doubt = true
		return nil, driver.State{}, ErrClosed
	}
	lease.start(sent)
	return lease, driver.State{}, nil
}

// until returns giveUp, which it makes when it is first needed: a lock that is free needs no timer.
func (a *acquisition) until() context.Context {
	if a.giveUp != nil {
		return a.giveUp
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	unhook := context.AfterFunc(a.locker.closing, func() { cancel(ErrClosed) })
	waited := func() bool { return true }
	if a.wait >= 0 {
		waited = time.AfterFunc(time.Until(a.start.Add(a.wait)), func() { cancel(errWaited) }).Stop
	}
	a.giveUp = ctx
	a.stop = func() {
		waited()
		unhook()
		cancel(nil)
	}
	return ctx
}

var (
	errWaited   = errors.New("the wait is used up")
	errNoAnswer = errors.New("no answer within the wait: is the lock service there, and is Wait long enough for its latency?")
	errVoid     = errors.New("the lock service has cancelled this acquisition: try again")
)

// interrupted is the failure that ended the acquisition, with what the service had said before it; nil if there is none.
func (a *acquisition) interrupted() error {
	if a.failure == nil || a.blocked == nil {
		return a.failure
	}
	return &interruptedError{a.failure, a.blocked}
}

// gaveUp says why the acquisition ended without an answer, or with busy as the last one.
func (a *acquisition) gaveUp() error {
	cause := context.Cause(a.until())
	switch {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case a.failure != nil && errors.Is(cause, errWaited):
		return a.interrupted()
	case a.failure != nil:
		return fmt.Errorf("%w: %w", a.interrupted(), ended(a.ctx))
	case a.blocked == nil && errors.Is(cause, errWaited):
		return unavailable("acquire", errNoAnswer)
	case a.blocked == nil:
		return failed("acquire", a.ctx, errLeft)
	case errors.Is(cause, errWaited):
		return a.blocked
	default:
		return fmt.Errorf("%w: %w", a.blocked, ended(a.ctx))
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
