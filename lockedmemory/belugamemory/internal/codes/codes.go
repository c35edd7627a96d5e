// Package codes gives errors of locks and sessions the codes of Beluga.
package codes

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/lookatitude/beluga-ai/v2/core"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// The codes of the adapter's own. None is retryable.
const (
	OutcomeUnknown core.ErrorCode = "outcome_unknown"
	LockLost       core.ErrorCode = "lock_lost"
	ShuttingDown   core.ErrorCode = "shutting_down"
	Interrupted    core.ErrorCode = "interrupted"
)

// All lists the code of each error of this project. The first sentinel that matches decides.
var All = []struct {
	Sentinel error
	Code     core.ErrorCode
	message  string
}{
	{lockedmemory.ErrSuperseded, Interrupted, "a newer message came instead"},
	{lockedmemory.ErrStopped, Interrupted, "the message was stopped"},
	{distlock.ErrLost, LockLost, "the lease was lost"},
	{distlock.ErrOutcomeUnknown, OutcomeUnknown, "the server did not answer, and the call may have taken effect"},
	{distlock.ErrInterrupted, Interrupted, "the work was asked to end"},
	{distlock.ErrClosed, ShuttingDown, "the memory or the Locker was closed"},
	{distlock.ErrNotHeld, core.ErrInvalidInput, "the session's lock is not held"},
	{distlock.ErrInvalidKey, core.ErrInvalidInput, "no valid session"},
	{distlock.ErrInvalidOption, core.ErrInvalidInput, "invalid configuration"},
	{sessionstore.ErrIDConflict, core.ErrInvalidInput, "not stored"},
	{lockedmemory.ErrInvalidID, core.ErrInvalidInput, "not stored"},
	{lockedmemory.ErrInboxFull, core.ErrTimeout, "the inbox is full"},
	{sessionstore.ErrTooLarge, core.ErrInvalidInput, "not stored"},
	{sessionstore.ErrFull, core.ErrInvalidInput, "not replaced"},
	{sessionstore.ErrCodec, core.ErrInvalidInput, "a message cannot be stored"},
	{lockedmemory.ErrAnswerGone, core.ErrInvalidInput, "answered before"},
	{sessionstore.ErrGone, core.ErrNotFound, "the session was deleted or has expired"},
	{sessionstore.ErrDeleted, core.ErrNotFound, "the session was deleted"},
	{sessionstore.ErrNotEmpty, core.ErrInvalidInput, "not copied"},
	{sessionstore.ErrRange, core.ErrInvalidInput, "not replaced"},
	{sessionstore.ErrChanged, core.ErrTimeout, "the history changed while it was read"}, // a retry reads it
	{sessionstore.ErrBroken, core.ErrInvalidInput, "an entry cannot be read"},
	{errors.ErrUnsupported, core.ErrInvalidInput, "the memory is no session store"},
	{driver.ErrRights, core.ErrAuth, "a right is missing"},
	{distlock.ErrRefused, core.ErrProviderDown, "the server refused"},
	{distlock.ErrUnavailable, core.ErrProviderDown, "the server is down"},
	{distlock.ErrNotAcquired, core.ErrTimeout, "the session is busy"},
}

// named lists the calls with an ID, which makes their repetition safe.
var named = map[string]bool{"belugamemory.answer": true, "belugamemory.save_once": true, "belugarunner.run_once": true}

// of returns the code of the error of this project in err. op is the call that failed.
func of(op string, err error) (code core.ErrorCode, message string, known bool) {
	var busy *distlock.BusyError
	if errors.As(err, &busy) && busy.Self {
		return core.ErrInvalidInput, "the call would wait for itself", true
	}
	for _, c := range All {
		if !errors.Is(err, c.Sentinel) {
			continue
		}
		if c.Code == OutcomeUnknown && named[op] {
			return core.ErrProviderDown, "the server did not answer", true
		}
		return c.Code, c.message, true
	}
	return "", "", false
}

// Of gives an error of this project a code of Beluga. errors.Is still finds the sentinels and
// the errors of contexts. Other errors and the error of a cancelled caller stay unchanged.
func Of(op string, err error) error {
	if _, done := err.(*core.Error); done || err == nil {
		return err
	}
	code, message, known := of(op, err)
	if !known || retryable(code) && errors.Is(err, context.Canceled) { // a cancelled caller must not retry
		return err
	}
	return core.NewError(op, code, message, err)
}

// Inside gives an error of Beluga, such as that of its Runner or of an agent, the code of the error of this
// project in it. Other errors stay unchanged.
func Inside(op string, err error) error {
	code, message, known := of(innermost(err).Op, err)
	if outer := new(core.Error); !known || !errors.As(err, &outer) || outer.Code == code {
		return err
	}
	return core.NewError(op, code, message, err)
}

// innermost returns the core.Error that Beluga's agents and Runner have wrapped, or an empty one.
func innermost(err error) core.Error {
	e := new(core.Error)
	for cause := err; errors.As(cause, &e); cause = e.Err {
	}
	return *e
}

// Own reports whether there is an error of this project in err.
func Own(err error) bool { _, _, known := of("", err); return known }

// Retryable reports whether the error of this project in err says that a repetition is safe. Without one,
// Beluga decides.
func Retryable(err error) bool {
	inner := innermost(err)
	code, _, known := of(inner.Op, err)
	if !known {
		return core.IsRetryable(err)
	}
	return retryable(code) && (inner.Code == "" || retryable(inner.Code)) && !errors.Is(err, context.Canceled)
}

func retryable(code core.ErrorCode) bool { return core.IsRetryable(&core.Error{Code: code}) }

// Step is work under a lock.
type Step = func(ctx context.Context) error

// Under runs work under a lock. Errors of the lock get a code, the error of work stays unchanged.
func Under(op string, lock func(Step) error, work Step) error {
	err := lock(func(ctx context.Context) error {
		err := work(ctx)
		if err == nil || errors.Is(context.Cause(ctx), err) { // of the bare cause, the lock says why
			return err
		}
		return &workError{err}
	})
	if own, ok := err.(*workError); ok {
		return own.error
	}
	return Of(op, err)
}

// workError is an error that the work has returned.
type workError struct{ error }

func (e *workError) Unwrap() error { return e.error }

// Invalid returns a distlock.ErrInvalidOption.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", distlock.ErrInvalidOption, fmt.Errorf(format, args...))
}

// TypedNil returns an ErrInvalidOption if a message is a nil pointer: Beluga would call its methods.
func TypedNil[M any](messages ...M) error {
	for _, message := range messages {
		if v := reflect.ValueOf(message); v.Kind() == reflect.Pointer && v.IsNil() {
			return Invalid("a message is a nil %T; nothing was done: give a message", message)
		}
	}
	return nil
}
