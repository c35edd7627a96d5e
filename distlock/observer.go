package distlock

import (
	"context"
	"errors"
	"time"
)

// The names of the operations that an [Observer] is told of. Packages on top of distlock add their own.
const (
	OpAcquire = "distlock.acquire"
	OpExtend  = "distlock.extend"
	OpRelease = "distlock.release"
	OpRefence = "distlock.refence"
	// OpLost is a moment, not a period: Start and End follow each other at once.
	OpLost = "distlock.lost"
)

// Outcome says in one word how an [Operation] ended.
type Outcome string

// The outcomes. Busy and Timeout are the ordinary results of contention. Errors are Unavailable,
// Refused, Unknown, Lost and Failed.
const (
	OutcomeAcquired    Outcome = "acquired"    // an acquire was granted
	OutcomeDone        Outcome = "done"        // another operation succeeded
	OutcomeBusy        Outcome = "busy"        // held by somebody else, and the caller did not wait
	OutcomeTimeout     Outcome = "timeout"     // held by somebody else until the wait was used up
	OutcomeCancelled   Outcome = "cancelled"   // the ctx of the caller ended, or the Locker was closed
	OutcomeUnavailable Outcome = "unavailable" // the backend did not answer, or cannot for now
	OutcomeRefused     Outcome = "refused"     // the backend refused the command
	OutcomeUnknown     Outcome = "unknown"     // the answer is lost: it may or may not have taken effect
	OutcomeLost        Outcome = "lost"        // the lease was not held any more
	OutcomeFailed      Outcome = "failed"      // what ran under the lock failed, not the lock
)

// Observer is told of every operation of a [Locker] and of what is built on it: it is the hook for tracing, metrics and
// tests. Calls come from many goroutines and from the operation's own path, so they should return quickly.
type Observer interface {
	// Start is called before an operation, with its name and the fields that are known by then. The context it
	// returns is the one the operation runs under and the one that End gets. For [OpAcquire] it may set op.Metadata,
	// which then travels in the lock: those who find the lock busy see it in Operation.Blocker.
	Start(ctx context.Context, op *Operation) context.Context
	// End is called once for every Start, with the same op, now complete. op must not be kept after that.
	End(ctx context.Context, op *Operation)
}

// Operation is what an [Observer] sees of one operation.
type Operation struct {
	// Known at Start.
	Name      string
	Backend   string // the driver's name, as "redis"
	Key       string // personal data, most of the time: export what KeyMode.Show makes of it
	TTL       time.Duration
	Fence     int64             // for OpAcquire known at End, and 0 without a grant
	Scheduled bool              // for OpExtend: the renewal schedule did it, not the caller
	Metadata  map[string]string // for OpAcquire: set by Start, see there

	// Known at End.
	Err      error // nil for success; set for Busy and Timeout too
	Outcome  Outcome
	Attempts int               // how often the lock service was asked
	Wait     time.Duration     // from the call to the grant or its refusal
	Held     time.Duration     // for OpRelease and OpLost: how long the lease had been held
	Handoff  Handoff           // for OpAcquire: how the lock came; for OpRelease: HandoffLocal if the service was not asked
	Blocker  map[string]string // for OpAcquire: the Metadata of the last holder that was in the way, if any
	Unlocked bool              // it ran without the lock, because the service was away and somebody had asked for that
}

// Handoff says how an acquired lock reached its holder.
type Handoff string

// The ways of a lock. Those who wait in line mostly have it handed over.
const (
	HandoffNone   Handoff = "none"   // it was free when the service was asked
	HandoffLocal  Handoff = "local"  // by another lease of this process; of OpRelease: to one
	HandoffRemote Handoff = "remote" // by the service, in whose line the process had waited
)

// OutcomeOf classifies the error of an operation of a Locker, or of work done under its locks.
func OutcomeOf(err error) Outcome {
	var gone *leftError
	switch {
	case err == nil:
		return OutcomeDone
	case errors.Is(err, ErrLost), errors.Is(err, ErrNotHeld):
		return OutcomeLost
	case errors.Is(err, ErrRefused):
		return OutcomeRefused
	case errors.Is(err, ErrOutcomeUnknown):
		return OutcomeUnknown
	case errors.Is(err, ErrUnavailable):
		return OutcomeUnavailable
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed), errors.As(err, &gone):
		return OutcomeCancelled
	case errors.Is(err, ErrNotAcquired):
		return OutcomeTimeout
	default:
		return OutcomeFailed
	}
}

type nobody struct{}

func (nobody) Start(ctx context.Context, _ *Operation) context.Context { return ctx }
func (nobody) End(context.Context, *Operation)                         {}
