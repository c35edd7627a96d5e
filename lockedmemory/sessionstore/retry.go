package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// retry makes a call of the driver. While the service refuses the call for the moment, retry makes it
// again, until limit has passed or ctx ends. If ctx has ended before, nothing is sent.
//
// The error is the driver's. See MayHaveEffect in package driver of distlock.
func retry(ctx context.Context, limit time.Duration, call func() (storedriver.Verdict, error)) (v storedriver.Verdict, err error) {
	start, sent := time.Now(), false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("%w: %w", driver.ErrNotDone, err)
		} else {
			v, err = call()
		}
		v.Replayed = v.Replayed || sent
		if sent && err != nil && !driver.MayHaveEffect(err) {
			err = fmt.Errorf("%w: %w", driver.ErrReplayed, err)
		}
		if !errors.Is(err, driver.ErrTemporary) || time.Since(start)+pause > limit {
			return v, err
		}
		sent = driver.MayHaveEffect(err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return v, err
		}
	}
}
