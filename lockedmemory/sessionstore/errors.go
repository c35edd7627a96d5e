package sessionstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

// The sentinels of a store, beside those of distlock. No text names a session, a message or a turn ID.
var (
	// ErrUnavailable: the service that keeps the sessions did not answer, or not with sense. Of a write nobody knows whether it took
	// effect; one with a turn ID may be repeated safely, see lockedmemory.WithTurnID.
	ErrUnavailable = errors.New("sessionstore: store unavailable")
	// ErrTurnConflict: the turn ID was used before, for a Save of other messages. Nothing was written.
	ErrTurnConflict = errors.New("sessionstore: turn ID used for other messages")
	// ErrTurnID: the turn ID is empty or too long. Nothing was written.
	ErrTurnID = errors.New("sessionstore: invalid turn ID")
	// ErrTooLarge: a message is larger than Options.MaxMessage allows. Nothing was written.
	ErrTooLarge = errors.New("sessionstore: message too large")
	// ErrCodec: the codec failed. Of Save: nothing was written.
	ErrCodec = errors.New("sessionstore: codec failed")
	// ErrBroken: a stored entry cannot be read; see [EntryError].
	ErrBroken = errors.New("sessionstore: broken entry")
)

// StaleError says that the store has refused an access because it has seen a higher fencing token: a later holder has the
// session, or had it. It matches distlock.ErrLost. Nothing of a Save is there. A Clear
// that was sent again because its answer was lost may have taken effect the first time.
type StaleError struct {
	Fence int64 // of the lease
	Mark  int64 // the highest one that the store has seen; 0: the store has forgotten, and the lock's owner is another
	Cause error // why the lease could not get a higher token
}

func (e *StaleError) Error() string {
	text := fmt.Sprintf("%v: the store has seen fencing token %d, this lease has %d; nothing was written", distlock.ErrLost, e.Mark, e.Fence)
	if e.Mark == 0 {
		text = fmt.Sprintf("%v: the session is not there, and the lock's present owner is not this lease, which has fencing token %d; "+
			"nothing was written", distlock.ErrLost, e.Fence)
	}
	if e.Cause != nil {
		// The text begins with ErrLost, so the text of the cause need not.
		text += ": " + strings.TrimPrefix(e.Cause.Error(), distlock.ErrLost.Error()+": ")
	}
	return text
}

// Is reports whether target is distlock.ErrLost.
func (e *StaleError) Is(target error) bool { return target == distlock.ErrLost }

func (e *StaleError) Unwrap() error { return e.Cause }

// SaysItself tells package lockedmemory that the error says what became of the write.
func (e *StaleError) SaysItself() {}

// errNotBegun: ctx had ended before.
var errNotBegun = errors.New("not begun")

// told is an error that says what became of a write: that nothing was written, or that nobody knows.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// SaysItself keeps package lockedmemory from adding its own doubt, where the lease is lost meanwhile.
func (told) SaysItself() {}

// EntryError is an entry that cannot be read: it is broken, or another program's, or the codec refuses it. It matches
// [ErrBroken].
type EntryError struct {
	Place driver.Place // in Redis, this is the entry's ID
	Err   error
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("%v: at %s: %v", ErrBroken, e.Place, e.Err)
}

// Is reports whether target is [ErrBroken].
func (e *EntryError) Is(target error) bool { return target == ErrBroken }

func (e *EntryError) Unwrap() error { return e.Err }

// EntryErrors are all those that one Load or Search has met.
type EntryErrors []*EntryError

func (e EntryErrors) Error() string {
	const shown = 5
	var text strings.Builder
	for i, each := range e {
		if i == shown {
			fmt.Fprintf(&text, "; and %d more", len(e)-shown)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(each.Error())
	}
	return text.String()
}

// Unwrap returns each of them.
func (e EntryErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, each := range e {
		errs[i] = each
	}
	return errs
}

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: %w", distlock.ErrInvalidOption, fmt.Errorf(format, args...))
}
