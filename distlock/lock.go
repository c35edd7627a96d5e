package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lock is a handle on one lock, with the methods of the Beluga AI locking guide and their meaning. It holds at most one
// lease at a time. [Locker.Acquire] and [Locker.Do] give more: the lease's context and its fencing token.
//
// It differs from the guide's in what the guide leaves to the caller: the lease is renewed while the process lives
// (unless Options.RenewEvery is negative), Release works with a cancelled ctx, and a lease that was lost says so.
type Lock struct {
	locker *Locker
	key    string
	ttl    time.Duration

	mu    sync.Mutex
	lease *Lease
}

// NewLock makes a handle for key whose leases last for ttl between renewals; 0 means Options.TTL. It does no I/O:
// a key or ttl out of range is refused by the first Acquire.
func (l *Locker) NewLock(key string, ttl time.Duration) *Lock {
	if ttl == 0 {
		ttl = l.opts.TTL
	}
	return &Lock{locker: l, key: key, ttl: ttl}
}

// Acquire asks once for the lock. It returns true if this handle holds it now, false if somebody else does (another
// handle of the same process, or this one already, counts as somebody else). Errors are those of [Locker.TryAcquire]
// except [ErrNotAcquired].
func (k *Lock) Acquire(ctx context.Context) (bool, error) {
	err := k.acquire(ctx, patience{attempts: 1, wait: k.locker.opts.Wait})
	if errors.Is(err, ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err
}

// AcquireWithRetry asks for the lock up to maxRetries times, retryDelay apart: the guide's form is 3 times, 100 ms. It
// does not stand in line between its attempts, so those who do go first, and it may find the lock busy each time; see
// [Locker.Acquire] for the other way. It fails with a [BusyError] if somebody else held the lock each time, [ErrInvalidOption] if maxRetries is below 1 or
// retryDelay negative, or as [Locker.Acquire] does.
func (k *Lock) AcquireWithRetry(ctx context.Context, maxRetries int, retryDelay time.Duration) error {
	if maxRetries < 1 {
		return invalidOption("maxRetries is %d, but must be at least 1", maxRetries)
	}
	if retryDelay < 0 {
		return invalidOption("retryDelay is %s, but must not be negative", retryDelay)
	}
	err := k.acquire(ctx, patience{
		attempts: maxRetries,
		wait:     -1,
		delay:    func(int) time.Duration { return retryDelay },
	})
	if errors.Is(err, ErrNotAcquired) && ctx.Err() == nil {
		return fmt.Errorf("distlock: failed to acquire lock after %d attempts: %w", maxRetries, err)
	}
	return err
}

func (k *Lock) acquire(ctx context.Context, p patience) error {
	lease, err := k.locker.acquire(ctx, k.key, k.ttl, p)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease = lease
	return nil
}

// Extend sets the time the lock has left to ttl, as [Lease.Extend] does. It fails with [ErrNotHeld] if this handle does
// not hold the lock.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	k.mu.Lock()
	lease := k.lease
	k.mu.Unlock()
	if lease == nil {
		return ErrNotHeld
	}
	return lease.Extend(ctx, ttl)
}

// Release gives the lock back, as [Lease.Release] does. It fails with [ErrNotHeld] if this handle does not hold the
// lock, and with [ErrLost] if it held it and lost it.
func (k *Lock) Release(ctx context.Context) error {
	k.mu.Lock()
	lease := k.lease
	k.mu.Unlock()
	if lease == nil {
		return ErrNotHeld
	}
	err := lease.Release(ctx)
	lease.mu.Lock()
	over := lease.removed || lease.state == lost
	lease.mu.Unlock()
	if over || errors.Is(err, ErrClosed) { // else it may be tried again
		k.mu.Lock()
		if k.lease == lease {
			k.lease = nil
		}
		k.mu.Unlock()
	}
	return err
}
