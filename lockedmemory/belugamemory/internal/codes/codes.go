// Package codes gives errors of locks and sessions the codes of Beluga.
package codes

import (
	"context"
	"errors"
	"fmt"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// all lists the code of each error of this project. The first sentinel that matches decides.
var all = []struct {
	sentinel error
	code     core.ErrorCode
	message  string
}{
	{distlock.ErrLost, core.ErrInvalidInput, "the lease was lost"},
	{distlock.ErrNotHeld, core.ErrInvalidInput, "the session's lock is not held"},
	{distlock.ErrInvalidKey, core.ErrInvalidInput, "no valid session"},
	{distlock.ErrInvalidOption, core.ErrInvalidInput, "invalid configuration"},
	{distlock.ErrClosed, core.ErrInvalidInput, "the memory was closed"},
	{sessionstore.ErrTurnConflict, core.ErrInvalidInput, "not stored"},
	{lockedmemory.ErrTurnID, core.ErrInvalidInput, "not stored"},
	{sessionstore.ErrTooLarge, core.ErrInvalidInput, "not stored"},
	{sessionstore.ErrCodec, core.ErrInvalidInput, "a message cannot be stored"},
	{lockedmemory.ErrAnswerGone, core.ErrInvalidInput, "answered before"},
	{sessionstore.ErrGone, core.ErrInvalidInput, "not stored"},
	{sessionstore.ErrDeleted, core.ErrInvalidInput, "not stored"},
	{sessionstore.ErrRange, core.ErrInvalidInput, "not replaced"},
	{sessionstore.ErrChanged, core.ErrTimeout, "the history changed while it was read"}, // a retry reads it
	{sessionstore.ErrBroken, core.ErrInvalidInput, "an entry cannot be read"},
	{errors.ErrUnsupported, core.ErrInvalidInput, "the memory is no session store"},
	{driver.ErrRights, core.ErrAuth, "a right is missing"},
	{distlock.ErrRefused, core.ErrProviderDown, "the server refused"},
	{distlock.ErrUnavailable, core.ErrProviderDown, "the server is down"},
	{distlock.ErrOutcomeUnknown, core.ErrProviderDown, "the server did not answer"}, // a retry is safe
	{distlock.ErrNotAcquired, core.ErrTimeout, "the session is busy"},
}

// Of gives an error of this project a code of Beluga. errors.Is still finds the sentinels and
// the errors of contexts. Other errors and the error of a cancelled caller stay unchanged.
func Of(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, done := err.(*core.Error); done {
		return err
	}
	var busy *distlock.BusyError
	if errors.As(err, &busy) && busy.Self {
		return core.NewError(op, core.ErrInvalidInput, "the call would wait for itself", err)
	}
	for _, c := range all {
		if !errors.Is(err, c.sentinel) {
			continue
		}
		if (c.code == core.ErrTimeout || c.code == core.ErrProviderDown) && errors.Is(err, context.Canceled) {
			return err // a cancelled caller must not retry
		}
		return core.NewError(op, c.code, c.message, err)
	}
	return err
}

// Step is work under a lock.
type Step = func(ctx context.Context) error

// Under runs work under a lock. Errors of the lock get a code, the error of work stays unchanged.
func Under(op string, lock func(Step) error, work Step) error {
	err := lock(func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return &workError{err}
		}
		return nil
	})
	if own, ok := err.(*workError); ok {
		return own.error
	}
	return Of(op, err)
}

// workError is an error that the work has returned.
type workError struct{ error }

func (e *workError) Unwrap() error { return e.error }

// Self returns a BusyError with another text.
func Self(text error, busy distlock.BusyError) error { return &selfError{text, busy} }

// Invalid returns a distlock.ErrInvalidOption.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", distlock.ErrInvalidOption, fmt.Errorf(format, args...))
}

// selfError is a BusyError with another text.
type selfError struct {
	error
	busy distlock.BusyError
}

func (e *selfError) Unwrap() error { return &e.busy }
