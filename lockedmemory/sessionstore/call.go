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
// While the service answers quickly and the driver is punctual, the caller's goroutine makes the
// call. If that takes too long, another goroutine makes it again.
//
// The error is that of the driver, or of ctx. See driver.MayHaveEffect of distlock.
func call[T any](ctx context.Context, c *caller, f func(ctx context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil { // an answer that comes at once might win against ctx.Done below
		var none T
		return none, fmt.Errorf("%w: %w", lockdriver.ErrNotSent, err)
	}
	start := time.Now()
	sent := false
	if c.punctual != nil && c.quick.Load() && c.punctual.Ready() {
		deadline := start.Add(patientFor)
		if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
			deadline = own
		}
		hurried := c.alarms.Begin(ctx, deadline)
		value, err := f(hurried)
		c.alarms.End(hurried)
		now := time.Now()
		if now.Sub(start) >= quickly {
			c.quick.Store(false)
		}
		if err == nil || now.Before(deadline) || ctx.Err() != nil {
			return value, err
		}
		sent = lockdriver.MayHaveEffect(err)
		start = now
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := f(ctx)
		answers <- answer{value, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	c.quick.Store(a.err == nil && time.Since(start) < quickly)
	return a.value, after(sent, a.err)
}

// after is the error of the last copy of a call. earlier means that another copy may have taken effect.
func after(earlier bool, err error) error {
	if !earlier || err == nil || lockdriver.MayHaveEffect(err) {
		return err
	}
	return fmt.Errorf("%w: %w", lockdriver.ErrReplayed, err)
}

// retry makes a call again, for some time or until ctx ends, while the service turns the call away
// for now.
func retry(ctx context.Context, limit time.Duration, f func() error) error {
	start := time.Now()
	sent := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := after(sent, f())
		if err == nil || !errors.Is(err, lockdriver.ErrTemporary) || time.Since(start)+pause > limit {
			return err
		}
		sent = lockdriver.MayHaveEffect(err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// operation names a call in errors.
type operation string

const (
	opSave      operation = "save"
	opClear     operation = "clear"
	opNumber    operation = "save: reading the turn's highest number"
	opLoad      operation = "load"
	opSearch    operation = "search"
	opExchanges operation = "exchanges"
)

// writes reports whether the effect of the call is what the caller asked for. A read may leave a
// mark, which changes no history.
func (op operation) writes() bool { return op == opSave || op == opClear }
