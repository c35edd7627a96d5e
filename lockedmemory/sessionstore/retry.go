package sessionstore

import (
	"context"
	"time"

	"github.com/belugalock/belugalock/internal/retry"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// repeat is retry.Do for a call with a verdict.
func repeat(ctx context.Context, limit time.Duration, call func() (storedriver.Verdict, error)) (v storedriver.Verdict, err error) {
	sent, err := retry.Do(ctx, limit, func() (err error) {
		v, err = call()
		return err
	})
	v.Replayed = v.Replayed || sent
	return v, err
}
