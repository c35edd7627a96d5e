package sessionstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// The sentinels of a store, beside those of distlock. After each of them, the call has written nothing.
var (
	// ErrIDConflict: the ID was used before, for other messages.
	ErrIDConflict error = idConflict("sessionstore: message ID used for other messages")
	// ErrGone: the session has expired, or was deleted, since the turn used it. Load it in a new turn.
	ErrGone = errors.New("sessionstore: session gone")
	// ErrDeleted: the session was deleted while the turn waited for it. A new turn starts the session anew.
	ErrDeleted = errors.New("sessionstore: session deleted")
	// ErrRange: the history has no exchange at a given place, or a range ends before it begins, or the
	// Places of a Replace are out of order. Read the history again.
	ErrRange = errors.New("sessionstore: no such range")
	// ErrNotEmpty: the session into which a Fork copies has an exchange.
	ErrNotEmpty = errors.New("sessionstore: session not empty")
	// ErrChanged: the history has changed between two pages of a read. Begin the read again.
	ErrChanged = errors.New("sessionstore: history changed")
	// ErrTooLarge: a message or an exchange is larger than Options.MaxMessage says, or has over 256 messages.
	ErrTooLarge = errors.New("sessionstore: message too large")
	// ErrFull: the session has no place left for a Replace. Clear it.
	ErrFull = errors.New("sessionstore: session full")
	// ErrCodec: the codec failed.
	ErrCodec = errors.New("sessionstore: codec failed")
	// ErrBroken: a stored entry cannot be read; see [EntryError].
	ErrBroken = errors.New("sessionstore: broken entry")
)

// idConflict is the type of ErrIDConflict. The operation of the write has its Outcome.
type idConflict string

func (e idConflict) Error() string           { return string(e) }
func (idConflict) Outcome() distlock.Outcome { return distlock.OutcomeConflict }

// StaleError says that the store has seen a higher fencing token: a later holder has the session, or had
// it. It matches distlock.ErrLost. Nothing was written.
type StaleError struct {
	Fence int64 // of the lease
	// MarkToken is the highest token that the store has seen. 0: the session's mark has expired, and the
	// lock has another owner.
	MarkToken int64
}

func (e *StaleError) Error() string {
	reason := fmt.Sprintf("the store has seen fencing token %d, this lease has %d", e.MarkToken, e.Fence)
	if e.MarkToken == 0 {
		reason = fmt.Sprintf("the session is not there, and the lock has another owner than this lease, "+
			"which has fencing token %d", e.Fence)
	}
	return "sessionstore: stale lease: " + reason + "; load the history again in a new turn; " +
		"if this repeats, compare Namespace and server of the Lockers of all instances"
}

// Is reports whether target is distlock.ErrLost.
func (e *StaleError) Is(target error) bool { return target == distlock.ErrLost }

// Outcome is that of the write in its operation, see distlock.Operation.
func (*StaleError) Outcome() distlock.Outcome { return distlock.OutcomeStale }

// A kind is a sentinel of distlock with a text about the store.
type kind struct {
	error
	text string
}

var (
	unavailable    = &kind{distlock.ErrUnavailable, "sessionstore: store unavailable"}
	refused        = &kind{distlock.ErrRefused, "sessionstore: refused by the store"}
	outcomeUnknown = &kind{distlock.ErrOutcomeUnknown, "sessionstore: outcome unknown"}
)

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.error }

// refusalError is the error of an outcome that a higher token does not change.
func (r *request) refusalError(outcome storedriver.Outcome) error {
	switch outcome {
	case storedriver.Taken: // ⚑ the call has outlived its lease, and counts its places anew, see stateOf
		return fmt.Errorf("sessionstore: %s: %w; nothing was written", r.op, cmp.Or(r.lease.Err(), distlock.ErrNotHeld))
	case storedriver.Conflict:
		return fmt.Errorf("%w: %s: nothing was written: another exchange is stored under the ID: "+
			"use the stored one, which Answered returns", ErrIDConflict, r.op)
	case storedriver.Gone:
		err := ErrGone
		if cause := endOf(r.lease); cause != nil { // see stateOf
			err = fmt.Errorf("sessionstore: %s: %w", r.op, cause)
		}
		return fmt.Errorf("%w: the session has no exchange, so the history of this turn no longer exists; "+
			"nothing was written: begin a new turn and load the history again", err)
	case storedriver.Range:
		return fmt.Errorf("%w: %s: nothing was written: the history has no exchange where the range begins or ends; "+
			"it was trimmed, replaced or cleared, or has expired: read it again", ErrRange, r.op)
	case storedriver.NotEmpty:
		return fmt.Errorf("%w: %s: nothing was written: fork into a session without an exchange, or clear it first",
			ErrNotEmpty, r.op)
	case storedriver.Full:
		if r.op == opPut {
			return fmt.Errorf("sessionstore: %s: %w: nothing was written: put it again when some questions are answered", r.op,
				lockedmemory.ErrInboxFull)
		}
		return fmt.Errorf("%w: %s: nothing was written: the session has changed so often that there is no place for more: "+
			"clear it", ErrFull, r.op)
	case storedriver.Stopped:
		return fmt.Errorf("sessionstore: %s: %w; nothing was written", r.op, lockedmemory.ErrStopped)
	case storedriver.Superseded:
		return fmt.Errorf("sessionstore: %s: %w; nothing was written", r.op, lockedmemory.ErrSuperseded)
	case storedriver.Ended:
		return fmt.Errorf("sessionstore: %s: %w: the turn began to wait before a Stop; nothing was written", r.op,
			distlock.ErrInterrupted)
	case storedriver.Deleted:
		return fmt.Errorf("%w: %s: it was deleted while this turn or call waited for it; nothing was written: "+
			"begin a new one to start the session anew", ErrDeleted, r.op)
	}
	return r.callError(fmt.Errorf("the driver has answered %d, which this version does not know", outcome))
}

// callError is the error of a request whose call of the driver ended with err.
func (r *request) callError(err error) error {
	if err == nil {
		return nil
	}
	// A connection may fail by the deadline of ctx before ctx ends.
	if at, ok := r.ctx.Deadline(); ok && !time.Now().Before(at) {
		<-r.ctx.Done()
	}
	unknown, over := r.op.writes() && driver.MayHaveEffect(err), r.ctx.Err() != nil
	if !unknown && (errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrForeign)) {
		return fmt.Errorf("%w: %s: %w", refused, r.op, err)
	}
	switch {
	case over:
		err = contextError(r.ctx, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // of the client
		err = fmt.Errorf("no answer within the timeouts of the client: %v", err)
	}
	switch {
	case unknown:
		return fmt.Errorf("%w: %s: %w: %s", outcomeUnknown, r.op, err, r.op.advice())
	case over:
		return fmt.Errorf("sessionstore: %s: %w", r.op, err)
	}
	return fmt.Errorf("%w: %s: %w", unavailable, r.op, err)
}

// contextError is the error of an ended context. Its cause is text alone, because the cause may be the loss
// of another lease. The error of the driver is text alone, too.
func contextError(ctx context.Context, failure error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		err = fmt.Errorf("%w (%v)", err, cause)
	}
	if !errors.Is(failure, ctx.Err()) {
		err = fmt.Errorf("%w: %v", err, failure)
	}
	return err
}

// EntryError is an entry that cannot be read: it is broken, or another program's, or the codec
// refuses it. It matches [ErrBroken]. It ends a call without Options.SkipBroken.
type EntryError struct {
	Place lockedmemory.Place
	Err   error
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("%v: at %s: %v; to read the history without this entry, set Options.SkipBroken",
		ErrBroken, e.Place, e.Err)
}

// Unwrap returns [ErrBroken] and Err.
func (e *EntryError) Unwrap() []error { return []error{ErrBroken, e.Err} }

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: %w", distlock.ErrInvalidOption, fmt.Errorf(format, args...))
}
