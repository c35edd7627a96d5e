package distlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/internal/cleanup"
	"github.com/belugalock/belugalock/distlock/internal/queue"
	"github.com/belugalock/belugalock/distlock/internal/seam"
	"github.com/belugalock/belugalock/distlock/internal/trust"
)

// Acquire waits in a queue for the lock on key, until ctx ends, for at most Options.Wait. A key has
// 1 to 1,024 bytes of UTF-8, without control characters. Errors: a [BusyError] (also if the queue is
// full), [ErrUnavailable], [ErrRefused], [ErrInvalidKey], [ErrInvalidOption], [ErrClosed], or that of
// ctx; under the lease for key at once BusyError.Self, [ErrLost] or [ErrNotHeld].
func (l *Locker) Acquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, false, opts)
}

// TryAcquire asks once, and queues and overtakes nowhere; see [Locker.Acquire].
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, true, opts)
}

func (l *Locker) acquire(ctx context.Context, key string, once bool, opts []CallOption) (lease *Lease, err error) {
	a := &acquisition{locker: l, caller: ctx, once: once, start: time.Now(), began: trust.Now()}
	a.settings = seam.Call{TTL: l.opts.TTL, Wait: l.opts.Wait}
	for _, set := range opts {
		set(&a.settings)
	}
	if err := cmp.Or(validTTL(a.settings.TTL), validKey(key)); err != nil {
		return nil, err
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	defer l.workEnds()

	a.op = Operation{Name: OpAcquire, Key: key, TTL: a.settings.TTL.Truncate(time.Millisecond)}
	op := &a.op
	a.ctx = l.begin(ctx, op)
	if a.settings.Work != "" {
		shown := map[string]string{driver.WorkKey: a.settings.Work}
		maps.Copy(shown, op.Metadata)
		op.Metadata = shown
	}
	defer func() {
		l.end(a.ctx, op, a.start)
		if lease != nil {
			lease.begun.Done()
		}
	}()

	out := a.waitAndAsk()
	lease, err = out.lease, op.complete(out.err)
	work := a.settings.Work
	if busy := (*BusyError)(nil); work != "" && op.Blocker[driver.WorkKey] == work && errors.As(err, &busy) {
		busy.SameID = true
	}
	switch {
	case lease != nil:
		op.Outcome, op.Fence, op.Handoff = OutcomeAcquired, lease.Fence(), cmp.Or(op.Handoff, HandoffNone)
	case a.once && op.Outcome == OutcomeTimeout:
		op.Outcome = OutcomeBusy
	}
	return lease, err
}

// firstAnswer is how long the backend may take at most to answer an acquisition for the first time,
// or a call that asks once. If the TTL is shorter, the TTL is the limit.
const firstAnswer = 5 * time.Second

// acquisition is one call of Acquire, contending for its lock.
type acquisition struct {
	locker   *Locker
	caller   context.Context // the context of the lease is made from it
	ctx      context.Context // the same with the additions of the Observer
	op       Operation
	settings seam.Call
	once     bool // asks the backend once, without a place in the queue
	start    time.Time
	began    trust.Moment
	waiter   *waiter // its place in the process; nil if it asks once
	last     lastAnswer
	// awaited is the lowest token of a holder that the backend has shown since start; 0: none. Answers to
	// other requests of the process count, too.
	awaited atomic.Int64

	req             driver.AcquireRequest
	copiesMayArrive bool // a copy of a request may take effect later
	place           place
}

// outcome is how an acquisition ended: with a lease or an error.
type outcome struct {
	lease   *Lease
	err     error
	failure queue.Failure // says which waiters err concerns
}

// waitAndAsk gets the lock: at once, or after a wait in the queue.
func (a *acquisition) waitAndAsk() (out outcome) {
	l := a.locker
	if lease, ok := l.FromContext(a.ctx, a.op.Key); ok {
		if err := lease.Err(); err != nil {
			return outcome{err: err}
		}
		return outcome{err: &BusyError{Self: true, Holder: l.opts.Holder, Held: time.Since(lease.acquired)}}
	}
	if a.ctx.Err() != nil {
		return outcome{err: callerLeft("acquire", a.ctx)}
	}
	ctx, cancel := a.waitContext()
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)()
	if a.once {
		return a.askUntilGranted(ctx)
	}
	a.waiter = l.queues.Join(a.op.Key, a)
	if a.waiter.Waited {
		if l.opts.Interruptible { // ⚑ or it first sees the token of an Interrupt that comes later
			l.queues.AskNow(a.op.Key)
		}
		defer time.AfterFunc(ownWait, a.warnOfOwnWait).Stop()
		if out, ended := a.waitBehindProcess(ctx); ended {
			return out
		}
	}
	defer func() { // also if the driver panics
		if out.lease == nil {
			a.waiter.Yield(out.failure, out, a.last)
		}
	}()
	return a.askUntilGranted(ctx)
}

// waitContext returns the context of the wait.
func (a *acquisition) waitContext() (context.Context, context.CancelFunc) {
	if a.settings.Wait < 0 {
		return context.WithCancel(a.ctx)
	}
	return context.WithDeadline(a.ctx, a.start.Add(a.settings.Wait))
}

// askUntilGranted asks the backend until it grants the lock, or ctx, that of the wait, ends, or the
// backend is silent for too long: for the time of a first answer, and after it for a TTL.
func (a *acquisition) askUntilGranted(ctx context.Context) (out outcome) {
	l := a.locker
	a.req = driver.AcquireRequest{
		Name:     driver.Name{Namespace: l.opts.Namespace, Key: a.op.Key},
		Owner:    newOwner(),
		TTL:      a.op.TTL,
		Holder:   l.opts.Holder,
		Metadata: a.op.Metadata,
		Frees:    a.settings.Frees,
	}
	defer func() {
		a.place.stop()
		if out.lease == nil {
			a.undo()
		}
	}()
	// How long the backend may be silent, and since when it is. ⚑ After an answer, a single call has less: the
	// backend may be well, and the place ends or the lock is handed off while a call hangs. Each further try
	// may take as long as the silence so far, for a slow backend.
	silence, since := min(firstAnswer, a.op.TTL), time.Now()
	try := silence
	if a.waiter != nil && a.waiter.Waited && l.caps.Queues { // it would have to wait there, too
		a.joinQueue(ctx, silence/2)
	}
	for ctx.Err() == nil {
		silent := time.Since(since)
		if silent >= silence {
			return a.failed(unavailable("acquire", &deadlineError{context.DeadlineExceeded, noAnswer(silence)}))
		}
		lease, reply, err := a.ask(ctx, min(silence-silent, max(try, silent)))
		if lease != nil {
			return outcome{lease: lease}
		}
		// ⚑ The end of ctx is the reason, whatever became of the request. Close ends ctx a moment after the Locker.
		if err != nil && (ctx.Err() != nil || l.closing.Err() != nil) {
			break
		}
		next := a.next(reply, err)
		if err == nil || next == reenters {
			silence, since, try = a.op.TTL, time.Now(), min(checkGrace, a.op.TTL/4)
		}
		switch next {
		case reenters:
			a.reenter(ctx, try)
			continue
		case fails:
			return a.failed(err)
		}
		a.note(reply, err)
		switch next {
		case ends:
			if err = a.last.err(); reply.Outcome == driver.Full {
				err = fmt.Errorf("%w: %w", err, errFull)
			}
			return outcome{err: err}
		case joins:
			a.joinQueue(ctx, min(try, (silence-time.Since(since))/2))
		case listens:
			a.listen(ctx, try) // ⚑ its place must not end before the next request
		case pauses:
			if lease := a.pause(ctx, reply, silence-time.Since(since)); lease != nil {
				return outcome{lease: lease}
			}
			if err == nil { // a pause after an answer is no silence
				since = time.Now()
			}
		}
	}
	return a.gaveUp()
}

// undo withdraws all requests of the acquisition. The backend ends a grant whose caller has left. A
// request that reaches the backend after that finds the tombstone of its owner.
func (a *acquisition) undo() {
	req := driver.ReleaseRequest{Name: a.req.Name, Owner: a.req.Owner, Leave: a.place.wanted}
	if a.copiesMayArrive {
		req.Tombstone = cleanup.Tombstone(a.req.TTL)
	}
	if a.copiesMayArrive || req.Leave {
		a.locker.cleaner.Add(req, a.req.TTL, 0)
	}
}

// newOwner makes the identity of one acquisition.
func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
