package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/hurry"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
)

const (
	// quickly is how soon a service must have answered for the next call to be made in the caller's goroutine.
	quickly = 5 * time.Millisecond
	// patientFor is how long such a call may take. It bounds by how much a caller whose ctx ends meanwhile is late.
	patientFor = 15 * time.Millisecond
)

// caller makes the calls of a driver.
type caller struct {
	punctual driver.Punctual // nil if the driver is not
	quick    atomic.Bool     // the service has answered quickly of late
	alarms   hurry.Alarms
}

// call makes a call of a driver that may not notice that ctx ends, and returns when it has ended or ctx has. What the call does
// after that, it does within the time-outs of the driver's client. It makes none if ctx has ended before.
//
// While the service answers quickly and the driver is punctual, the call is made here and now; if that takes too long it is made again,
// as it is told, in a goroutine of its own.
func call[T any](ctx context.Context, c *caller, operation string, f func(ctx context.Context, again bool) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil { // an answer that comes at once might win against ctx.Done below
		var none T
		return none, told{fmt.Errorf("sessionstore: %s: %w: %w", operation, errNotBegun, ended(ctx))}
	}
	start := time.Now()
	again := false
	if c.punctual != nil && c.quick.Load() && c.punctual.Ready() {
		deadline := start.Add(patientFor)
		if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
			deadline = own
		}
		hurried := c.alarms.Begin(ctx, deadline)
		value, err := f(hurried, false)
		c.alarms.End(hurried)
		now := time.Now()
		if now.Sub(start) >= quickly {
			c.quick.Store(false)
		}
		if err == nil || now.Before(deadline) || ctx.Err() != nil {
			return value, failed(ctx, operation, err)
		}
		again = true
		start = now
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := f(ctx, again)
		answers <- answer{value, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	c.quick.Store(a.err == nil && time.Since(start) < quickly)
	return a.value, failed(ctx, operation, a.err)
}

// isTemporary reports whether a service that is there has turned a call away for now.
func isTemporary(err error) bool { return errors.Is(err, lockdriver.ErrTemporary) }

// retry makes a call again, for some time or until ctx ends, while its error is one that may pass.
func retry(ctx context.Context, limit time.Duration, passes func(error) bool, f func() error) (err error) {
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		before := err
		if err = f(); before != nil && errors.Is(err, errNotBegun) {
			return before // this time it was not begun, but it was before
		}
		if err == nil || !passes(err) || time.Since(start)+pause > limit {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// failed is the error of a call.
func failed(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		end := ended(ctx)
		err = fmt.Errorf("sessionstore: %s: no answer came in time, so a write may or may not have happened: %w", operation, end)
		if errors.Is(end, context.DeadlineExceeded) { // which says something about the service, too
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return told{err}
	}
	return told{fmt.Errorf("%w: %s: a write may or may not have happened: %w", ErrUnavailable, operation, err)}
}

// ended says why ctx has.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
