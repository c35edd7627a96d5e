package distlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/queue"
)

// lastAnswer describes the lock that an acquisition waits for, as the backend or the process knows it.
type lastAnswer struct {
	busy     *BusyError // without an answer nil
	at       time.Time
	metadata map[string]string // of the holder
	ticket   int64             // in the backend's queue, for the next contender
	failure  error             // came after the answer
}

// err is the error that the last answer makes. It is nil without an answer and a failure. ⚑ After a failure,
// the present holder is not known: the error does not match ErrNotAcquired.
func (s *lastAnswer) err() error {
	if s.busy == nil {
		return s.failure
	}
	busy := *s.busy
	busy.Held += time.Since(s.at)
	if s.failure == nil {
		return &busy
	}
	return fmt.Errorf("%w (before that: %v)", s.failure, &busy)
}

// answer is the last answer for waiters behind a lease of their process.
func (le *Lease) answer() lastAnswer {
	return lastAnswer{busy: le.grant.locker.busy, at: le.acquired, metadata: le.metadata}
}

// note keeps a busy answer of the backend.
func (a *acquisition) note(busy driver.AcquireReply) {
	s := busy.State
	if busy.Ticket != 0 {
		s.Waiters-- // itself
	}
	own, waiting := a.locker.queues.Held(a.op.Key)
	a.last = lastAnswer{at: time.Now(), metadata: s.Metadata, ticket: a.req.Ticket,
		busy: &BusyError{Holder: s.Holder, ThisProcess: own, Held: s.Age, Waiters: s.Waiters + waiting}}
	a.op.Blocker = s.Metadata
}

// outlives reports whether to go on after err, while patience lasts. A backend that cannot answer now,
// as during a failover, gets time. So does a backend that has answered before: a waiter does not lose
// its place to a lost connection. After a TTL of silence there is no lease left to wait for.
func (a *acquisition) outlives(err error) bool {
	return !errors.Is(err, errCancelled) && !definite(err) &&
		(a.last.busy != nil || errors.Is(err, driver.ErrTemporary))
}

// definite reports whether every other request would fail with err of the backend, too.
func definite(err error) bool {
	return errors.Is(err, driver.ErrForeign) || errors.Is(err, driver.ErrRefused)
}

var errCancelled = errors.New("the lock service has cancelled this acquisition: try again")

// failed is the outcome of an acquisition that err ends. A contender with a short TTL gives the
// backend less time than other waiters do, so its failure is its own. So is that of a request that a
// backend has refused and not done: a waiter that frees memory may pass.
func (a *acquisition) failed(err error) outcome {
	failure := queue.Repeated
	switch {
	case definite(err) && !errors.Is(err, driver.ErrNotDone):
		failure = queue.Shared
	case definite(err), errors.Is(err, errCancelled), a.op.TTL < a.locker.opts.TTL:
		failure = queue.Own
	}
	last := a.last
	last.failure = err
	return outcome{err: last.err(), failure: failure}
}

// gaveUp is the outcome of an acquisition whose Locker was closed, whose caller has left, or whose wait is
// over.
func (a *acquisition) gaveUp() outcome {
	err, left := a.last.err(), a.ctx.Err() != nil
	switch {
	case a.locker.closing.Err() != nil: // not the cause of ctx, which may be that of another Locker
		err = ErrClosed
	case left && err == nil:
		err = callerLeft("acquire", a.ctx)
	case left:
		err = fmt.Errorf("%w: %w", err, ctxError(a.ctx))
	case err == nil:
		err = unavailable("acquire", errors.New(noAnswer(a.settings.Wait)))
	}
	return outcome{err: err}
}
