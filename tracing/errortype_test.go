package tracing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// A span names the type of the cause, and not that of the text around it.
func TestTypeOf_firstTellingType(t *testing.T) {
	broken := &net.OpError{Op: "dial", Err: &net.DNSError{}}
	stale := &sessionstore.StaleError{Cause: broken}
	for want, errs := range map[string][]error{
		"*net.OpError": {broken, fmt.Errorf("x: %w", broken), errors.Join(errors.New("x"), broken),
			fmt.Errorf("%w: acquire: %w", distlock.ErrUnavailable, fmt.Errorf("y: %w", broken))},
		"*sessionstore.StaleError":      {stale, fmt.Errorf("%w: %w", distlock.ErrLost, stale)},
		"*fs.PathError":                 {&fs.PathError{Err: broken}},
		"context.deadlineExceededError": {fmt.Errorf("x: %w", context.DeadlineExceeded)},
		"sessionstore.turnConflict":     {fmt.Errorf("x: %w", sessionstore.ErrTurnConflict)},
		"*distlock.BusyError":           {errors.Join(&distlock.BusyError{}, broken)},
		"*tracing.empty":                {&empty{}, unexported{&empty{}}},
		"*fmt.wrapError":                {fmt.Errorf("x: %w", distlock.ErrLost)},
		"*errors.errorString":           {distlock.ErrLost},
		"tracing.unexported":            {unexported{errors.New("x")}, unexported{}},
		"*tracing.Exported":             {unexported{&Exported{broken}}},
	} {
		for _, err := range errs {
			if got := typeOf(err); got != want {
				t.Errorf("%#v: %s, want %s", err, got, want)
			}
		}
	}
}

type (
	empty      struct{}
	unexported struct{ error }
	Exported   struct{ error }
)

func (*empty) Error() string       { return "" }
func (e unexported) Error() string { return "" }
func (e unexported) Unwrap() error { return e.error }
func (e *Exported) Unwrap() error  { return e.error }
