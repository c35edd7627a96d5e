package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The timer of a pause and the end of ctx may come together: a call is then made again, and not begun. What was sent before may have
// happened.
func TestRetry_O_keepsTheDoubtOfWhatWasBegun(t *testing.T) {
	open, notBegun := errors.New("a write may or may not have happened"), fmt.Errorf("%w: %w", errNotBegun, context.Canceled)
	errs := []error{open, notBegun}
	err := retry(t.Context(), time.Minute, func(error) bool { return true }, func() (err error) {
		err, errs = errs[0], errs[1:]
		return err
	})
	if !errors.Is(err, open) {
		t.Errorf("the first call was begun, and the error is: %v", err)
	}
	err = retry(t.Context(), time.Minute, func(error) bool { return false }, func() error { return notBegun })
	if !errors.Is(err, errNotBegun) {
		t.Errorf("nothing was begun, and the error is: %v", err)
	}
}
