package driver

import (
	"errors"
	"fmt"
)

// The kinds of a failed call. The error of a call wraps the kind that is certain. An error without
// a kind means an unknown outcome: no answer came, or an answer in an unknown format. See
// [MayHaveEffect].
var (
	// ErrTemporary says that the backend cannot answer now: it starts, fails over, moves data, or
	// is busy. The same call may succeed in a moment.
	ErrTemporary = errors.New("the service cannot answer now")
	// ErrRefused says that the backend refuses the call until an operator changes something: a
	// right is missing, or memory.
	ErrRefused = errors.New("the service refused")
	// ErrRights is the ErrRefused of a user, or of a password, that lacks a right.
	ErrRights = fmt.Errorf("%w: a right is missing", ErrRefused)
	// ErrForeign says that the name of the lock holds data of another program. The data stays as it
	// is.
	ErrForeign = errors.New("data of another program has the name of the lock")
	// ErrFloor says that the requested tokens are more than FloorAhead ahead of the backend's
	// clock. Nothing was written.
	ErrFloor = errors.New("the floor is more than a year ahead of the service's clock")
	// ErrNotDone says that the call has no effect: the request was not sent, because no connection
	// could be made, none was free, or ctx had ended; or the backend refused or undid all of it. It
	// may stand beside another kind.
	ErrNotDone = errors.New("the request was not carried out")
	// ErrReplayed says that the request was sent more than once. The kind beside it is that of the
	// last copy. An earlier copy may have taken effect.
	ErrReplayed = errors.New("an earlier copy of the request may have taken effect")
)

// MayHaveEffect reports whether a request that failed with err may have taken effect, or may do so
// later.
func MayHaveEffect(err error) bool {
	for _, definite := range []error{ErrTemporary, ErrRefused, ErrForeign, ErrFloor, ErrNotDone} {
		if errors.Is(err, definite) {
			return errors.Is(err, ErrReplayed)
		}
	}
	return err != nil
}
