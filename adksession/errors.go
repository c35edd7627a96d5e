package adksession

import (
	"context"
	"errors"

	"github.com/belugalock/belugalock/distlock"
)

// The errors of a Service, beside those of distlock. After each of them, the call has written nothing.
var (
	// ErrNotFound: there is no such session, or it was deleted or has expired since it was read.
	ErrNotFound = errors.New("adksession: session not found: create it, or read its present state")
	// ErrExists: Create found a session with this ID.
	ErrExists = errors.New("adksession: session exists: choose another session ID, or read this session")
	// ErrStale: another append came since the session was read. It matches distlock.ErrLost.
	ErrStale error = &failure{
		"adksession: session changed since it was read; nothing was written: read it again", distlock.ErrLost}
	// ErrAnswered: the tool of this confirmation has run already.
	ErrAnswered = errors.New("adksession: the confirmation was answered before, and its tool has run; " +
		"nothing was written")
	// ErrCodec: an event or a value cannot be stored, or cannot be read.
	ErrCodec = errors.New("adksession: an event or a value of a state cannot be stored or read: " +
		"check its types and keys, and use one version in all processes")
	// ErrTooLarge: an event, also one with the first state of a session, is larger than Options.MaxEvent.
	ErrTooLarge = errors.New("adksession: the event or state is larger than Options.MaxEvent; nothing was written")
)

// errInside is the error of a Run or Stop that would wait for the run around it.
var errInside error = &failure{"adksession: this call is inside a run of its own session; nothing was written: " +
	"return from the run, call Append, or run another session", &distlock.BusyError{Self: true}}

// failure is an error with a fixed text.
type failure struct {
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

// kinds are errors of distlock, and of a context, in the order of precedence.
var kinds = []failure{
	{"adksession: outcome unknown: read the session to see whether the call took effect", distlock.ErrOutcomeUnknown},
	{"adksession: interrupted: the run was told to end", distlock.ErrInterrupted},
	{"adksession: the lease of the session was lost: read the session again under a new one", distlock.ErrLost},
	{"adksession: the Locker is closed: run again on another instance", distlock.ErrClosed},
	{"adksession: the lease of this context has ended: use the context of a present run", distlock.ErrNotHeld},
	{"adksession: session busy: another run or append has its lock; nothing was written: retry later", distlock.ErrNotAcquired},
	{"adksession: invalid key: app, user and session ID have 1 to 128 bytes of UTF-8 without U+0000", distlock.ErrInvalidKey},
	{"adksession: invalid option: the event is nil, or this Service has not made the session or the options", distlock.ErrInvalidOption},
	{"adksession: refused by the service: an operator must act", distlock.ErrRefused},
	{"adksession: the lock service asks no holder to end: use locks other than a Redlock", errors.ErrUnsupported},
	{"adksession: service unavailable; nothing was written: retry later", distlock.ErrUnavailable},
	{"adksession: the context was canceled", context.Canceled},
	{"adksession: the deadline of the context has passed", context.DeadlineExceeded},
}

// public returns an error whose text is fixed by its kind. ⚑ ADK's triggers run an error again whose text has
// "429": an ID, a token, a time or an address can have it.
func public(err error) error {
	if _, done := err.(*failure); done || err == nil {
		return err
	}
	for _, own := range []error{ErrNotFound, ErrExists, ErrAnswered, ErrCodec, ErrTooLarge, ErrStale} {
		if errors.Is(err, own) {
			return &failure{own.Error(), err}
		}
	}
	for _, k := range kinds {
		if errors.Is(err, k.cause) {
			return &failure{k.text, err}
		}
	}
	return &failure{"adksession: the call failed", err}
}
