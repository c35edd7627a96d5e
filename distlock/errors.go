package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// The errors, for [errors.Is]. The texts carry advice, never a key. The error of a context stands
// beside them, as in a cancelled wait.
var (
	ErrNotAcquired = errors.New("distlock: lock not acquired")              // another holder has it
	ErrNotHeld     = errors.New("distlock: lock not held by this instance") // released, or never acquired
	ErrLost        = errors.New("distlock: lease lost")                     // it ended; another may work
	ErrInterrupted = errors.New("distlock: interrupted")                    // by Interrupt; the lease lasts on
	// ErrUnavailable: the backend is silent or not ready. Nothing was written. Retry later.
	ErrUnavailable = errors.New("distlock: lock service unavailable")
	// ErrRefused: rights, memory, or data of another program. Nothing was written. An operator must act.
	ErrRefused = errors.New("distlock: refused by the lock service")
	// ErrOutcomeUnknown: a write may have taken effect, or may yet. Never with [ErrUnavailable] or [ErrRefused].
	ErrOutcomeUnknown = errors.New("distlock: outcome unknown")

	ErrInvalidKey    = errors.New("distlock: invalid key")    // the key cannot name a lock
	ErrInvalidOption = errors.New("distlock: invalid option") // out of range; nothing was started
	ErrClosed        = errors.New("distlock: locker closed")
)

// BusyError describes the holder of a busy lock. It matches [ErrNotAcquired].
type BusyError struct {
	Holder      string        // the holder's Options.Holder; empty if it is not known
	Held        time.Duration // since the backend's grant, up to 10 ms before the present lease
	Waiters     int           // others in the backend's queue, and in this process behind its first waiter
	Self        bool          // the caller holds the lock, by its context
	ThisProcess bool          // the same Locker does; perhaps the call was given the outer context
	SameID      bool          // the holder answers the message ID of this call, or did within the last 10 ms
}

func (e *BusyError) Error() string {
	if e.Self {
		return ErrNotAcquired.Error() + ": the caller holds this lock already and would wait for itself: " +
			"use the context that the function of Do or Turn was given, " +
			"and instead of Acquire use Do, or FromContext to get the lease"
	}
	holder := cmp.Or(e.Holder, "another client")
	if e.ThisProcess {
		holder += " (this process)"
	}
	text := fmt.Sprintf("%s: held by %s for %s", ErrNotAcquired, holder, e.Held.Round(time.Millisecond))
	if e.Waiters > 0 {
		text += fmt.Sprintf(", %d waiting", e.Waiters)
	}
	if e.SameID {
		text += ", with the same message ID"
	}
	return text
}

func (e *BusyError) Is(target error) bool { return target == ErrNotAcquired }

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalidOption, fmt.Errorf(format, args...))
}

func unavailable(operation string, cause error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, operation, cause)
}

// failedRead is the error of a driver's call without an effect that matters: of Inspect, of renewals, raises
// and checks, and of Acquire, which undoes its effect.
func failedRead(operation string, cause error) error {
	if refused(cause) {
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

// callerLeft is the error of a call without effect whose caller has left.
func callerLeft(operation string, ctx context.Context) error {
	return &leftError{fmt.Errorf("distlock: %s: %w", operation, ctxError(ctx))}
}

// leftError marks the error of a caller's ctx for OutcomeOf: the work under a lock may fail with such
// an error, too.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// ctxError is the error of an ended context, with the cause as text alone: the cause may be the loss of
// another lease.
func ctxError(ctx context.Context) error {
	switch cause := context.Cause(ctx); cause {
	case ctx.Err():
		return ctx.Err()
	case ErrLost: // its text may stand in the error around this one
		return fmt.Errorf("%w (the lease of this context was lost)", ctx.Err())
	default:
		return fmt.Errorf("%w (%v)", ctx.Err(), cause)
	}
}
