package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Lock has the methods of the Beluga AI locking guide, and one lease.
type Lock struct {
	locker *Locker
	key    string
	ttl    time.Duration
	lease  atomic.Pointer[Lease]
}

// NewLock makes a Lock. 0 means Options.TTL. Acquire checks the arguments.
func (l *Locker) NewLock(key string, ttl time.Duration) *Lock {
	return &Lock{locker: l, key: key, ttl: ttl}
}

// Acquire is [Locker.TryAcquire], and returns false if the lock is held.
func (k *Lock) Acquire(ctx context.Context) (bool, error) {
	err := k.acquire(ctx)
	if errors.Is(err, ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err
}

// AcquireWithRetry asks up to maxRetries times, retryDelay apart; in the guide 3 times, 100 ms. Waiters
// overtake it. It has the errors of [Locker.Acquire].
func (k *Lock) AcquireWithRetry(ctx context.Context, maxRetries int, retryDelay time.Duration) error {
	if maxRetries < 1 {
		return invalidOption("maxRetries is %d, but must be at least 1", maxRetries)
	}
	if retryDelay < 0 {
		return invalidOption("retryDelay is %s, but must not be negative", retryDelay)
	}
	for attempts := 1; ; attempts++ {
		err := k.acquire(ctx)
		busy := errors.Is(err, ErrNotAcquired)
		switch {
		case busy && attempts == maxRetries:
			return fmt.Errorf("distlock: failed to acquire lock after %d attempts: %w", attempts, err)
		case !busy && !errors.Is(err, ErrUnavailable), attempts == maxRetries:
			return err
		}
		select {
		case <-time.After(atLeastOneTick(retryDelay)):
		case <-ctx.Done():
			return callerLeft("acquire", ctx)
		}
	}
}

func (k *Lock) acquire(ctx context.Context) error {
	lease, err := k.locker.TryAcquire(ctx, k.key, WithTTL(k.ttl))
	if err == nil {
		k.lease.Store(lease)
	}
	return err
}

// Extend is [Lease.Extend], or fails with [ErrNotHeld].
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	return k.lease.Load().Extend(ctx, ttl)
}

// Release is [Lease.Release], or fails with [ErrNotHeld]. It may be repeated.
func (k *Lock) Release(ctx context.Context) error {
	lease := k.lease.Load()
	if lease == nil {
		return ErrNotHeld
	}
	err := lease.Release(ctx)
	if err == nil {
		k.lease.CompareAndSwap(lease, nil)
	}
	return err
}
