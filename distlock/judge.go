package distlock

import (
	"cmp"
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
	busy := &BusyError{Holder: le.grant.locker.opts.Holder, ThisProcess: true}
	return lastAnswer{busy: busy, at: le.acquired, metadata: le.metadata}
}

// next is what an acquisition does after a request that was not granted.
type next int

const (
	pauses   next = iota // until it is time to ask again
	joins                // the backend's queue, and asks at once
	listens              // for notifications again, and asks at once: it may have missed one
	reenters             // the queue as a new owner, and asks at once: it has not claimed a handoff in time
	ends                 // with the last answer
	fails                // with the error
)

// next decides by a reply that is busy or full, or by an error.
func (a *acquisition) next(reply driver.AcquireReply, err error) next {
	p, l := &a.place, a.locker
	switch {
	case errors.Is(err, errCancelled) && (p.joined || p.wanted && a.copiesMayArrive):
		return reenters
	case err != nil && !a.goesOnAfter(err):
		return fails
	case a.once || reply.Outcome == driver.Full:
		return ends
	case (l.caps.Queues || l.listener != nil) && !p.wanted:
		return joins
	case err == nil && l.listener != nil && p.wakes == nil && time.Since(p.listened) >= checkEvery:
		return listens
	}
	return pauses
}

// note keeps a busy answer of the backend, or an error after it, also for other waiters of the process.
func (a *acquisition) note(reply driver.AcquireReply, err error) {
	if a.last.failure = err; err == nil {
		s := reply.State
		if reply.Ticket != 0 {
			s.Waiters-- // itself
		}
		since, waiting := a.locker.queues.Held(a.op.Key)
		a.last = lastAnswer{at: time.Now(), metadata: s.Metadata, ticket: a.req.Ticket,
			busy: &BusyError{Holder: s.Holder, ThisProcess: !since.IsZero(), Held: s.Age, Waiters: s.Waiters + waiting}}
		a.op.Blocker = s.Metadata
	}
	if a.waiter != nil {
		a.waiter.Answered(a.last, err != nil)
	}
}

// goesOnAfter reports whether to go on after err, while patience lasts. A backend that cannot answer now,
// as during a failover, gets time. So does a backend that has answered before: a waiter does not lose
// its place to a lost connection. After a TTL of silence there is no lease left to wait for.
func (a *acquisition) goesOnAfter(err error) bool {
	return !errors.Is(err, errCancelled) && !refused(err) &&
		(a.last.busy != nil || errors.Is(err, driver.ErrTemporary))
}

// refused reports whether every other request would fail with err of the backend, too.
func refused(err error) bool {
	return errors.Is(err, driver.ErrForeign) || errors.Is(err, driver.ErrRefused)
}

var errCancelled = errors.New("the lock service has cancelled this acquisition: try again")

// failed is the outcome of an acquisition that err ends. A contender with a short TTL gives the
// backend less time than other waiters do, so its failure is its own. So is that of a request that a
// backend has refused and not done: a waiter that frees memory may pass.
func (a *acquisition) failed(err error) outcome {
	if late := (*deadlineError)(nil); errors.As(err, &late) {
		err = cmp.Or(a.last.failure, err) // ⚑ the end of the patience hides why the backend gave no lock
	}
	failure := queue.Repeated
	switch {
	case refused(err) && !errors.Is(err, driver.ErrNotDone):
		failure = queue.Shared
	case refused(err), errors.Is(err, errCancelled), a.op.TTL < a.locker.opts.TTL:
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
	if since, _ := a.locker.queues.Held(a.op.Key); err == nil && !since.IsZero() {
		err = &BusyError{Holder: a.locker.opts.Holder, ThisProcess: true, Held: time.Since(since)}
	}
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
