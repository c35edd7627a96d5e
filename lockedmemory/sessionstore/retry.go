package sessionstore

import (
	"context"
	"errors"
	"time"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/retry"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// repeat makes a call again while the service refuses it for the moment, see retry.Do.
func repeat(ctx context.Context, limit time.Duration, call func() (storedriver.Verdict, error)) (v storedriver.Verdict, err error) {
	temporary := func(err error) bool { return errors.Is(err, driver.ErrTemporary) }
	sent, err := retry.Do(ctx, limit, temporary, func() (err error) {
		v, err = call()
		return err
	})
	v.Replayed = v.Replayed || sent
	return v, err
}
