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

// A function that is called under the lock finds the lease, and its token, in the context.
func ExampleLocker_Do() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		lease, ok := locker.FromContext(ctx, "conversation-42")
		fmt.Println("alone with the conversation:", ok, lease.Key(), lease.Fence() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone with the conversation: true conversation-42 true
	// <nil>
}

func ExampleLocker_Acquire() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Holder: "instance-1", TTL: 10 * time.Second})
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "conversation-42", distlock.WithWait(5*time.Second))
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
	info, err := locker.Inspect(ctx, "conversation-42")
	fmt.Println(info.Held, info.Holder, info.Fence == lease.Fence(), err)
	// Output:
	// busy, held by instance-1
	// true instance-1 true <nil>
}

// A job that another instance does already is left out.
func ExampleLocker_TryDo() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	lease, _ := locker.Acquire(ctx, "customer-42")
	bill := func(context.Context) error { return nil }
	err := locker.TryDo(ctx, "customer-42", bill)
	fmt.Println(errors.Is(err, distlock.ErrNotAcquired))
	_ = lease.Release(ctx)
	fmt.Println(locker.TryDo(ctx, "customer-42", bill, distlock.WithTTL(time.Minute)))
	// Output:
	// true
	// <nil>
}

// A person stops the work on a conversation, from any instance.
func ExampleLocker_Interrupt() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Interruptible: true})
	defer locker.Close(ctx)

	err := locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		fmt.Println(locker.Interrupt(ctx, "conversation-42"))
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, distlock.ErrInterrupted))
	// Output:
	// true <nil>
	// true
}

// A store that keeps the highest token it has seen is safe from a holder that was paused past its TTL.
func ExampleLease_Fence() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	highest := int64(0)
	write := func(lease *distlock.Lease) error {
		if lease.Fence() < highest {
			return fmt.Errorf("%w: token %s", distlock.ErrLost, "too low")
		}
		highest = lease.Fence()
		return nil
	}
	first, _ := locker.Acquire(ctx, "conversation-42")
	_ = first.Release(ctx)
	second, _ := locker.Acquire(ctx, "conversation-42")
	fmt.Println(write(second))
	fmt.Println(write(first))
	// Output:
	// <nil>
	// distlock: lease lost: token too low
}

// A Guard runs one write, and a long one gets a longer lease than the TTL. After the end of the lease its
// context has ended, Err says why, and the Guard refuses.
func ExampleLease_Guard() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{TTL: 10 * time.Second})
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "order-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func(ctx context.Context) error { return nil }
	fmt.Println(lease.Extend(ctx, time.Minute), time.Until(lease.Deadline()) > 30*time.Second)
	fmt.Println(lease.Guard(ctx, write), lease.Err(), lease.Release(ctx))
	<-lease.Context().Done()
	fmt.Println(errors.Is(lease.Err(), distlock.ErrNotHeld), errors.Is(lease.Guard(ctx, write), distlock.ErrNotHeld))
	// Output:
	// <nil> true
	// <nil> <nil> <nil>
	// true true
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
	fmt.Println(lock.Extend(ctx, time.Minute), lock.Release(ctx))
	// Output: <nil> <nil>
}

// The backends' own New call New. An application calls it for a wrapped driver.
func ExampleNew() {
	ctx := context.Background()
	locker, err := distlock.New(memlock.NewDriver(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Println(locker.Ping(ctx))
	// Output: <nil>
}

// count is an Observer that counts outcomes.
type count map[distlock.Outcome]int

func (c count) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (c count) End(_ context.Context, op *distlock.Operation)                    { c[op.Outcome]++ }

func ExampleObservers() {
	ctx := context.Background()
	acquired, other := count{}, count{} // an Observer of the application, and one of package tracing
	locker := newLocker(&distlock.Options{Observer: distlock.Observers(acquired, other)})
	_ = locker.Do(ctx, "order-42", func(context.Context) error { return nil })
	_ = locker.Close(ctx)
	fmt.Println(acquired[distlock.OutcomeAcquired], other[distlock.OutcomeDone])
	// Output: 1 1
}

// A handler of HTTP requests chooses a status by the outcome.
func ExampleOutcomeOf() {
	fmt.Println(distlock.OutcomeOf(fmt.Errorf("billing: %w", distlock.ErrUnavailable)))
	// Output: unavailable
}

// An Observer that exports keys shows them as log lines do.
func ExampleKeyMode_Show() {
	fmt.Println(distlock.KeyHashed.Show("conversation-42"))
	// Output: c5119362c78ef8e9
}
