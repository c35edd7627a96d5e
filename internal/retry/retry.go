// Package retry repeats calls of a driver.
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
)

// Do makes a call of a driver. While again accepts its error, Do makes it again, until limit has passed
// or ctx ends. If ctx has ended before, nothing is sent. sent reports whether a copy before the last may
// have taken effect.
//
// The error is the driver's. See MayHaveEffect in package driver of distlock.
func Do(ctx context.Context, limit time.Duration, again func(error) bool, call func() error) (sent bool, err error) {
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("%w: %w", driver.ErrNotDone, err)
		} else {
			err = call()
		}
		if sent && err != nil && !driver.MayHaveEffect(err) {
			err = fmt.Errorf("%w: %w", driver.ErrReplayed, err)
		}
		if err == nil || !again(err) || time.Since(start)+pause > limit {
			return sent, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return sent, err
		}
		sent = driver.MayHaveEffect(err)
	}
}
