package distlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// callDriver makes a call of the driver within a limit. The error of a deadline, which is the limit's or the
// client's own, names the limit, see deadlineError.
func callDriver[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, atLeastOneTick(limit))
	defer cancel()
	reply, err := f(limited)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return reply, err
	}
	text := noAnswer(limit)
	if time.Since(start) < limit {
		text = "no answer within the timeouts of the client; " + advice
	}
	if detail := err.Error(); !strings.Contains(detail, context.DeadlineExceeded.Error()) {
		text += ": " + detail
	}
	return reply, &deadlineError{err, text}
}

const advice = "check the lock service and the network to it"

// noAnswer is the text about a call that had no answer within its limit.
func noAnswer(limit time.Duration) string {
	return fmt.Sprintf("no answer within %s; %s", limit.Round(time.Millisecond), advice)
}

// deadlineError gives the error of a deadline another text. It matches all errors that the error
// matches, except the errors of contexts: the caller's ctx may have no deadline.
type deadlineError struct {
	err  error
	text string
}

func (e *deadlineError) Error() string { return e.text }

func (e *deadlineError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.err, target)
}

func (e *deadlineError) As(target any) bool { return errors.As(e.err, target) }
