package distlock

import (
	"context"
	"errors"
	"time"
)

// The operations that an [Observer] sees. Packages above distlock add their own.
const (
	OpAcquire    = "distlock.acquire"
	OpExtend     = "distlock.extend"
	OpRelease    = "distlock.release"
	OpRaiseToken = "distlock.raise_token"
	OpLost       = "distlock.lost" // a moment, at Operation.Began
)

// Outcome is the end of an [Operation] in one word.
type Outcome string

const (
	OutcomeAcquired    Outcome = "acquired"    // an acquire was granted
	OutcomeDone        Outcome = "done"        // another operation succeeded
	OutcomeBusy        Outcome = "busy"        // another holder has the lock, and the caller did not wait
	OutcomeTimeout     Outcome = "timeout"     // another holder had the lock until the wait was over
	OutcomeCancelled   Outcome = "cancelled"   // the ctx of the caller ended, or the Locker was closed
	OutcomeUnavailable Outcome = "unavailable" // ErrUnavailable
	OutcomeRefused     Outcome = "refused"     // ErrRefused
	OutcomeUnknown     Outcome = "unknown"     // ErrOutcomeUnknown
	OutcomeLost        Outcome = "lost"        // the lease has ended
	OutcomeInterrupted Outcome = "interrupted" // ErrInterrupted
	OutcomeFailed      Outcome = "failed"      // the work under the lock failed
	OutcomeStale       Outcome = "stale"       // the store refused the write: it has seen a later lease
	OutcomeConflict    Outcome = "conflict"    // the store refused the write: its ID has other messages
)

// Observer sees the operations of a [Locker] and of the packages above it, in the goroutines of the
// callers. One goroutine reports renewals, losses and releases by Close, in order, after the End of
// the acquire. A panic of a hook is logged. A hook must not call Close or Goexit.
type Observer interface {
	// Start comes before the request. It may set op.Metadata of OpAcquire.
	Start(ctx context.Context, op *Operation) context.Context
	// End is called once for every Start that returned, with its context and op. Do not keep op.
	End(ctx context.Context, op *Operation)
}

// Operation is one operation as an [Observer] sees it.
type Operation struct {
	// Known at Start.
	Name      string
	Backend   string // as "redis"
	Namespace string // of the Locker
	Key       string // often personal data: export KeyMode.Show of it
	TTL       time.Duration
	Fence     int64             // of OpAcquire known at End; 0 without a grant
	Scheduled bool              // of OpExtend: a renewal
	Metadata  map[string]string // of OpAcquire: set by Start, kept with the lock, the Blocker of waiters
	Began     time.Time         // of operations without a caller, which are reported later; else zero

	// Known at End.
	Err       error // nil for success
	Outcome   Outcome
	Attempts  int               // requests sent; of OpRelease 0 if the last write of a store released the lock
	Wait      time.Duration     // from the call to its end; with Began, until the answer or the end of patience
	Ended     bool              // it ended the lease, as one OpRelease or OpLost of each lease does
	Held      time.Duration     // with Ended: from the grant to the end of the lease
	Handoff   Handoff           // of OpAcquire; of OpRelease: HandoffLocal without a request
	Blocker   map[string]string // of OpAcquire: the Metadata of the last holder that was in the way
	Exchanges int               // stored by a turn of lockedmemory or belugarunner; its Wait ends where its Held begins

	started []started // see observers
}

// Handoff is the way in which an acquired lock reached its holder.
type Handoff string

const (
	HandoffNone   Handoff = "none"   // the lock was free
	HandoffLocal  Handoff = "local"  // from another lease of this process; of OpRelease: to one
	HandoffRemote Handoff = "remote" // from another process, by the backend's queue
)

// OutcomeOf returns the Outcome of an error of a Locker or of its work.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return OutcomeDone
	}
	var gone *leftError
	switch {
	case errors.Is(err, ErrLost), errors.Is(err, ErrNotHeld):
		return OutcomeLost
	case errors.Is(err, ErrRefused):
		return OutcomeRefused
	case errors.Is(err, ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, ErrUnavailable):
		return OutcomeUnavailable
	case errors.Is(err, ErrInterrupted):
		return OutcomeInterrupted
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed), errors.As(err, &gone):
		return OutcomeCancelled
	case errors.Is(err, ErrNotAcquired):
		return OutcomeTimeout
	default:
		return OutcomeFailed
	}
}

// errCallDidNotReturn is the error of an operation whose call did not return.
var errCallDidNotReturn = errors.New("the call panicked or ended its goroutine")

// begin calls Start for op. The call defers end.
func (l *Locker) begin(ctx context.Context, op *Operation) context.Context {
	ctx = l.opts.Observer.Start(ctx, op)
	op.Err, op.Outcome = errCallDidNotReturn, OutcomeFailed
	return ctx
}

// end calls End for op, with the context of begin.
func (l *Locker) end(ctx context.Context, op *Operation, start time.Time) {
	op.Wait = time.Since(start)
	l.opts.Observer.End(ctx, op)
}

// complete gives op the error of the call.
func (op *Operation) complete(err error) error {
	op.Err, op.Outcome = err, OutcomeOf(err)
	return err
}
