package distlock

import (
	"errors"
	"fmt"
	"time"
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
	// ErrUnavailable: the lock service did not answer, or not with sense. It says nothing about who holds the lock; if the
	// service had named a holder to the same call before, [errors.As] finds that [BusyError]. A grant whose answer was
	// lost is undone in the background, and ends with its TTL at the latest.
	ErrUnavailable = errors.New("distlock: lock service unavailable")
	// ErrInvalidKey: the key cannot name a lock; see [Locker.Acquire] for what can.
	ErrInvalidKey = errors.New("distlock: invalid key")
	// ErrInvalidOption: a constructor's argument is out of its range. Nothing was started.
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
		return ErrNotAcquired.Error() + ": the call is part of the work that it would wait for: " +
			"use the context that the function of Do or Turn was given, with Do or Turn, which join the lease, or FromContext to get it"
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
