package distlock

import (
	"context"
	"errors"
	"time"
)

// The names of the operations that an [Observer] is told of. Packages on top of distlock add their own.
const (
	OpAcquire    = "distlock.acquire"
	OpExtend     = "distlock.extend"
	OpRelease    = "distlock.release"
	OpRaiseToken = "distlock.raise_token"
	// OpLost is a moment, at Operation.Began. Start and End follow each other.
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

// Observer sees every operation of a [Locker] and of the packages above it. It is the hook for
// tracing, metrics and tests. Calls come from many goroutines.
//
// Start and End of a call run in the caller's goroutine, so a slow method delays that call and
// nothing else. Scheduled renewals, releases by Close and losses have no caller. One goroutine of the
// Locker reports them in their order, after they have taken effect, with Operation.Began set. If
// methods block for long, the Locker drops reports of renewals, but no others. A panic in a method is
// logged, at most once per minute, and the operation goes on.
//
// Methods must not call Close: it waits for them.
type Observer interface {
	// Start is called before the request of an operation is sent, with its name and the fields that
	// are known by then. The operation runs under the returned context, and End gets that context.
	// A nil context counts as ctx. For [OpAcquire], Start may set op.Metadata, which then travels in
	// the lock: callers that find the lock busy see it in Operation.Blocker.
	// [OpRelease] has ended the lease on this side before Start.
	Start(ctx context.Context, op *Operation) context.Context
	// End is called once for every Start that returned, with the same op, now complete, after the
	// answer has taken effect. Do not keep op after End.
	End(ctx context.Context, op *Operation)
}

// Operation is what an [Observer] sees of one operation.
type Operation struct {
	// Known at Start.
	Name      string
	Backend   string // the driver's name, as "redis"
	Key       string // personal data, most of the time: export KeyMode.Show of it
	TTL       time.Duration
	Fence     int64             // for OpAcquire known at End, and 0 without a grant
	Scheduled bool              // for OpExtend: the renewal schedule did it, not the caller
	Metadata  map[string]string // for OpAcquire: set by Start, see there
	// Began is when an operation without a caller began: a scheduled renewal, a release by Close, or
	// a loss. Its report comes later. Zero for the other operations, which begin with Start.
	Began time.Time

	// Known at End.
	Err      error // nil for success; set for Busy and Timeout too
	Outcome  Outcome
	Attempts int               // how often the lock service was asked
	Wait     time.Duration     // from the call to its end; with Began, until the answer or the end of patience
	Held     time.Duration     // for OpRelease and OpLost: how long the lease had been held
	Handoff  Handoff           // for OpAcquire: how the lock came; for OpRelease: HandoffLocal if the service was not asked
	Blocker  map[string]string // for OpAcquire: the Metadata of the last holder that was in the way, if any
	Unlocked bool              // it ran without the lock, because the service was away and somebody had asked for that

	unstarted bool // Start panicked
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

// errUnwound is the error of an operation whose call did not return.
var errUnwound = errors.New("the call panicked or ended its goroutine")

// observe calls Start for op, and makes op ready for an End that runs while the call unwinds.
func (l *Locker) observe(ctx context.Context, op *Operation) context.Context {
	ctx = l.opts.Observer.Start(ctx, op)
	op.Err, op.Outcome = errUnwound, OutcomeFailed
	return ctx
}

// end completes op with the error of the call.
func (op *Operation) end(err error) error {
	op.Err, op.Outcome = err, OutcomeOf(err)
	return err
}

// guarded keeps the panics of an application's Observer from the operations of a Locker.
type guarded struct {
	observer Observer
	reports  *reports
}

func (g *guarded) Start(ctx context.Context, op *Operation) (started context.Context) {
	defer g.reports.survive("Observer.Start", op)
	started, op.unstarted = ctx, true
	if next := g.observer.Start(ctx, op); next != nil {
		started = next
	}
	op.unstarted = false
	return started
}

// End skips an operation whose Start panicked. Without the span of Start in the context, an Observer
// might end the span of the caller.
func (g *guarded) End(ctx context.Context, op *Operation) {
	if op.unstarted {
		return
	}
	defer g.reports.survive("Observer.End", op)
	g.observer.End(ctx, op)
}

type nobody struct{}

func (nobody) Start(ctx context.Context, _ *Operation) context.Context { return ctx }
func (nobody) End(context.Context, *Operation)                         {}
