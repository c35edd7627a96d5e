package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// newLocker stands for redislock.New(client, opts), or any other backend.
func newLocker(opts *distlock.Options) *distlock.Locker {
	locker, err := memlock.New(opts)
	if err != nil {
		panic(err)
	}
	return locker
}

func ExampleLocker_Do() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		fmt.Println("alone with the conversation")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone with the conversation
	// <nil>
}

func ExampleLocker_Acquire() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Holder: "instance-1", TTL: 10 * time.Second})
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "conversation-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx) // works even if ctx is cancelled by then

	_, err = locker.TryAcquire(ctx, "conversation-42")
	var busy *distlock.BusyError
	if errors.As(err, &busy) {
		fmt.Println("busy, held by", busy.Holder)
	}
	// Output: busy, held by instance-1
}

// A store that keeps the highest token it has seen is safe from a holder that was paused past its TTL.
func ExampleLease_Fence() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	highest := int64(0)
	write := func(lease *distlock.Lease, text string) error {
		if lease.Fence() < highest {
			return fmt.Errorf("%w: token %s", distlock.ErrLost, "too low")
		}
		highest = lease.Fence()
		return nil
	}

	first, _ := locker.Acquire(ctx, "conversation-42")
	_ = first.Release(ctx)
	second, _ := locker.Acquire(ctx, "conversation-42")
	fmt.Println(write(second, "new"))
	fmt.Println(write(first, "late"))
	// Output:
	// <nil>
	// distlock: lease lost: token too low
}

func ExampleLock() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	lock := locker.NewLock("memory:session-123", 30*time.Second)
	if err := lock.AcquireWithRetry(ctx, 3, 100*time.Millisecond); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Release(ctx))
	// Output: <nil>
}

func ExampleLocker_Inspect() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Holder: "instance-1"})
	defer locker.Close(ctx)

	lease, _ := locker.Acquire(ctx, "conversation-42")
	info, err := locker.Inspect(ctx, "conversation-42")
	fmt.Println(info.Held, info.Holder, info.Fence == lease.Fence(), err)
	// Output: true instance-1 true <nil>
}

func ExampleWithWait() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Wait: 5 * time.Second})
	defer locker.Close(ctx)

	_, _ = locker.Acquire(ctx, "conversation-42")
	_, err := locker.Acquire(ctx, "conversation-42", distlock.WithWait(50*time.Millisecond))
	fmt.Println(errors.Is(err, distlock.ErrNotAcquired))
	// Output: true
}

// An Observer that exports keys shows them as log lines do.
func ExampleKeyMode_Show() {
	fmt.Println(distlock.KeyHashed.Show("conversation-42"))
	// Output: c5119362c78ef8e9
}
