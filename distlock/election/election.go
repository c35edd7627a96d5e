// Package election lets one of many instances lead:
//
//	err := election.Run(ctx, locker, "scheduler", func(ctx context.Context) error {
//		lease, _ := locker.FromContext(ctx, "scheduler")
//		return schedule(ctx, lease.Fence()) // until ctx ends
//	})
//
// docs/design/election.md states the protocol.
package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
)

const (
	leastPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
	calm       = time.Minute // an attempt that lasts this long begins the pauses anew
)

// Run campaigns: it waits in the queue for the lock on name, without a limit but ctx. Then it runs
// lead. The context of lead carries the lease and its fencing token, see [distlock.Locker.FromContext]. It
// ends with ctx, or when the lease is lost, before another instance can lead.
//
// Run resigns when lead has returned: it releases the lock, and returns the result of lead. A panic
// of lead goes on. So lead itself repeats work that fails for a moment, and returns when the work has
// failed for too long. To campaign again then, call Run again after a pause.
//
// After a loss, and after an error of lead that matches [distlock.ErrLost] or [distlock.ErrInterrupted], Run
// waits for lead, drops its result, and campaigns again, so lead may run several times. While the lock
// service fails, Run logs each failure and tries again after a pause of at most 5 s.
//
// A lead that works on after the end of its context may run beside the next leader. Then only a store
// that compares fencing tokens refuses its writes. A lead that reads and then writes shows its token to
// that store before its first read.
//
// Otherwise Run fails with the error of ctx, [distlock.ErrClosed], [distlock.ErrInvalidKey],
// [distlock.ErrInvalidOption], or with a [distlock.BusyError] whose Self is true if ctx carries a lease
// for name. Options may set the TTL; a wait has no effect. Close the Locker after Run has returned:
// Close does not wait for lead.
func Run(ctx context.Context, locker *distlock.Locker, name string, lead func(ctx context.Context) error,
	opts ...distlock.CallOption) error {
	if _, ok := locker.FromContext(ctx, name); ok { // ⚑ Do would join that lease, and never campaign
		return &distlock.BusyError{Self: true}
	}
	opts = append(slices.Clone(opts), distlock.WithWait(-1))
	for failures := 0; ; failures++ {
		began, led := time.Now(), false
		err := locker.Do(ctx, name, func(ctx context.Context) error {
			led = true
			return lead(ctx)
		}, opts...)
		switch {
		case led && ctx.Err() != nil, !again(led, err):
			return err
		case ctx.Err() != nil:
			return ended(ctx, err)
		}
		if time.Since(began) >= calm {
			failures = 0
		}
		d := pause(failures)
		o := fencing.Options(locker)
		what := "election: the instance has lost the lead, and campaigns again after a pause"
		if !led {
			what = "election: the campaign failed; the instance campaigns again after a pause"
		}
		about := []any{"led", led, "pause_ms", d.Milliseconds(), "error", err}
		if o.LogKeys != distlock.KeyNone {
			about = append(about, "lock_key", o.LogKeys.Show(name))
		}
		o.Logger.WarnContext(ctx, what, about...)
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ended(ctx, err)
		}
	}
}

// ended is the error of a campaign that ctx has ended, after err.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("election: the campaign has ended: %w (before that: %v)", ctx.Err(), err)
}

// again reports whether to campaign again after err.
func again(led bool, err error) bool {
	if led {
		return errors.Is(err, distlock.ErrLost) || errors.Is(err, distlock.ErrInterrupted)
	}
	return !errors.Is(err, distlock.ErrClosed) && !errors.Is(err, distlock.ErrInvalidKey) &&
		!errors.Is(err, distlock.ErrInvalidOption)
}

// pause returns the pause after some failures: exponential, half of it random.
func pause(failures int) time.Duration {
	bound := min(mostPause, leastPause<<min(failures, 10))
	return bound/2 + rand.N(bound/2+1)
}

// Leader tells who leads, and since when, for people and dashboards: Held is false without a leader.
// The answer may be outdated at once. Errors: as [distlock.Locker.Inspect].
func Leader(ctx context.Context, locker *distlock.Locker, name string) (distlock.Info, error) {
	return locker.Inspect(ctx, name)
}
