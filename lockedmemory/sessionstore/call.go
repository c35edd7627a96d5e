package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	lockdriver "github.com/belugalock/belugalock/distlock/driver"
)

// call makes a call of the driver, unless ctx has ended before. See driver.MayHaveEffect of distlock.
func call[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", lockdriver.ErrNotDone, err)
	}
	return f(ctx)
}

// retry makes a call again, for some time or until ctx ends, while the service turns the call away
// for now.
func retry(ctx context.Context, limit time.Duration, f func() error) error {
	start := time.Now()
	sent := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f()
		if sent && err != nil && !lockdriver.MayHaveEffect(err) {
			err = fmt.Errorf("%w: %w", lockdriver.ErrReplayed, err)
		}
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
