package calls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrLeft is the error of a call whose caller's context ended before the answer.
	ErrLeft error = unsettledError("no answer yet")
	// errNoReturn is the error of a call that ended its goroutine, as t.Fatal does in a test.
	errNoReturn error = unsettledError("the driver's call ended its goroutine and gave no answer; mend the driver")
)

// unsettledError is the error of a call whose result late gets, now or later.
type unsettledError string

func (e unsettledError) Error() string { return string(e) }

// Unsettled reports whether late gets the result of the call that failed with err.
func Unsettled(err error) bool {
	if err == nil {
		return false
	}
	var e unsettledError
	return errors.As(err, &e)
}

const advice = "check the lock service and the network to it"

// NoAnswer is the text about a call that had no answer within its limit.
func NoAnswer(limit time.Duration) string {
	return fmt.Sprintf("no answer within %s; %s", limit, advice)
}

// OwnDeadline gives an error of a deadline that is the limit's, or the client's own, a text that
// names the limit. The error then matches no error of a context: the caller's ctx may have no deadline.
func OwnDeadline(err error, limit, took time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	text := NoAnswer(limit)
	if took < limit {
		text = "no answer within the timeouts of the client; " + advice
	}
	if detail := err.Error(); !strings.Contains(detail, context.DeadlineExceeded.Error()) {
		text += ": " + detail
	}
	return &deadlineError{err, text}
}

// deadlineError gives the error of a deadline another text. It matches all errors that the error
// matches, except the errors of contexts.
type deadlineError struct {
	err  error
	text string
}

func (e *deadlineError) Error() string { return e.text }

func (e *deadlineError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e *deadlineError) As(target any) bool { return errors.As(e.err, target) }
