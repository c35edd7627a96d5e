package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The sentinels. Errors of this module are told apart with [errors.Is]; their texts carry details and advice, never a
// key. An error of a context stays visible beside the sentinel: a wait that ended because its ctx was
// cancelled is both [ErrNotAcquired] and [context.Canceled].
var (
	// ErrNotAcquired: somebody else holds the lock, and the caller did not want to wait any longer. Nothing is held,
	// nothing was written. Trying again later is the right answer.
	ErrNotAcquired = errors.New("distlock: lock not acquired")
	// ErrNotHeld: the lease was released before, or never acquired.
	ErrNotHeld = errors.New("distlock: lock not held by this instance")
	// ErrLost: the lease ended without being released. Work done under it may have met the work of another holder.
	ErrLost = errors.New("distlock: lease lost")
	// ErrUnavailable: the backend did not answer, or answered that it cannot for now. Nothing was
	// written, and nothing is held: if an answer of Acquire was lost, its grant is undone in the
	// background. If the backend had named a holder to the same call before, [errors.As] finds that
	// [BusyError]. Retry later.
	ErrUnavailable = errors.New("distlock: lock service unavailable")
	// ErrRefused: the backend refused the command: a right is missing, memory is used up, data of
	// another program has the name, or the protocols differ. Nothing was written. A retry fails again
	// until an operator has changed what the text names.
	ErrRefused = errors.New("distlock: refused by the lock service")
	// ErrOutcomeUnknown: the answer to an Extend, a Release or another write is lost. The request may
	// have taken effect, or may take effect later. ErrOutcomeUnknown never comes with [ErrUnavailable]
	// or [ErrRefused].
	ErrOutcomeUnknown = errors.New("distlock: outcome unknown")
	// ErrInvalidKey: the key cannot name a lock; see [Locker.Acquire] for what can.
	ErrInvalidKey = errors.New("distlock: invalid key")
	// ErrInvalidOption: an argument of a constructor or of fencing.RaiseToken is out of its range.
	// Nothing was started or written.
	ErrInvalidOption = errors.New("distlock: invalid option")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("distlock: locker closed")
)

// BusyError says who holds a lock that could not be acquired. It matches [ErrNotAcquired].
type BusyError struct {
	// Holder is the Options.Holder of the one who has the lock; empty if it is not known.
	Holder string
	// Held is how long that has been so. What the lock service says counts from its grant: if the lock was handed on within
	// the holder's process, that is about 10 ms too much at most.
	Held time.Duration
	// Waiters is how many others are known to wait: in the lock service's line, where each process counts once, and those
	// who stand in line behind that one in the caller's own process. There may be more: who waits in other processes behind
	// the first of each is not known.
	Waiters int
	// Self says that the caller would have waited on itself: its context carries the lease for this very key, or, inside a
	// Turn of lockedmemory, it has used another context than the turn's.
	Self bool
}

func (e *BusyError) Error() string {
	if e.Self {
		return ErrNotAcquired.Error() + ": the caller holds this lock already and would wait for itself: " +
			"use the context that the function of Do or Turn was given, and instead of Acquire use Do, or FromContext to get the lease"
	}
	holder := e.Holder
	if holder == "" {
		holder = "somebody else"
	}
	text := fmt.Sprintf("%s: held by %s for %s", ErrNotAcquired, holder, e.Held.Round(time.Millisecond))
	if e.Waiters > 0 {
		text += fmt.Sprintf(", %d waiting", e.Waiters)
	}
	return text
}

// Is reports whether target is [ErrNotAcquired].
func (e *BusyError) Is(target error) bool { return target == ErrNotAcquired }

// interruptedError is what ended an acquisition that had been told who holds the lock. It is no ErrNotAcquired: who holds the
// lock now is not known.
type interruptedError struct {
	error
	before *BusyError
}

func (e *interruptedError) Error() string {
	return fmt.Sprintf("%v (before that: %v)", e.error, e.before)
}
func (e *interruptedError) Unwrap() error { return e.error }

// As makes [errors.As] find the BusyError.
func (e *interruptedError) As(target any) bool {
	busy, ok := target.(**BusyError)
	if ok {
		*busy = e.before
	}
	return ok
}

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidOption, fmt.Errorf(format, args...))
}

func unavailable(operation string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, operation, cause)
}

// failedRead is the error of a driver's call that leaves no effect: of Inspect, and of Acquire, which
// undoes its own.
func failedRead(operation string, cause error) error {
	if definite(cause) {
		return fmt.Errorf("%w: %s: %w", ErrRefused, operation, cause)
	}
	return unavailable(operation, cause)
}

// failedWrite is the error of a driver's call whose effect stays.
func failedWrite(operation string, cause error) error {
	if driver.MayHaveEffect(cause) {
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, operation, cause)
	}
	return failedRead(operation, cause)
}

// left is the error of a call without effect whose caller has left.
func left(operation string, ctx context.Context) error {
	return &leftError{fmt.Errorf("distlock: %s: %w", operation, ended(ctx))}
}

// leftError marks the error of a caller's ctx for OutcomeOf: the work under a lock may fail with such
// an error, too.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// ended is the error of an ended context. Its cause is text alone: it may be the loss of another lease.
func ended(ctx context.Context) error {
	switch cause := context.Cause(ctx); cause {
	case ctx.Err():
		return ctx.Err()
	case ErrLost: // its text may stand in the error around this one
		return fmt.Errorf("%w (the lease of this context was lost)", ctx.Err())
	default:
		return fmt.Errorf("%w (%v)", ctx.Err(), cause)
	}
}
