package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// The backends' own New call New. An application calls it for a wrapped driver.
func ExampleNew() {
	ctx := context.Background()
	locker, err := distlock.New(memlock.NewDriver(), &distlock.Options{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Println(locker.Ping(ctx))
	// Output: <nil>
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

// A function that is called under the lock finds the lease, and its token, in the context.
func ExampleLocker_FromContext() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	pay := func(ctx context.Context) error {
		lease, ok := locker.FromContext(ctx, "order-42")
		fmt.Println(ok, lease.Key(), lease.Fence() > 0)
		return nil
	}
	_ = locker.Do(ctx, "order-42", pay)
	// Output: true order-42 true
}

// A Guard runs one write. After the end of the lease it refuses.
func ExampleLease_Guard() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "order-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func(ctx context.Context) error { return nil }
	fmt.Println(lease.Guard(ctx, write))
	_ = lease.Release(ctx)
	fmt.Println(errors.Is(lease.Guard(ctx, write), distlock.ErrNotHeld))
	// Output:
	// <nil>
	// true
}

// One long step gets a longer lease than the TTL.
func ExampleLease_Extend() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{TTL: 10 * time.Second})
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "order-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println(lease.Extend(ctx, time.Minute), time.Until(lease.Deadline()) > 30*time.Second)
	// Output: <nil> true
}

// The context ends with the lease, and Err says why.
func ExampleLease_Release() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "order-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Err(), lease.Release(ctx))
	<-lease.Context().Done()
	fmt.Println(errors.Is(lease.Err(), distlock.ErrNotHeld), lease.Release(ctx))
	// Output:
	// <nil> <nil>
	// true <nil>
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
	err := fmt.Errorf("billing: %w", distlock.ErrUnavailable)
	fmt.Println(distlock.OutcomeOf(err))
	// Output: unavailable
}

// The error says who holds the lock, and since when.
func ExampleBusyError() {
	ctx := context.Background()
	locker := newLocker(&distlock.Options{Holder: "instance-1"})
	defer locker.Close(ctx)

	_, _ = locker.Acquire(ctx, "order-42")
	_, err := locker.TryAcquire(ctx, "order-42")
	var busy *distlock.BusyError
	fmt.Println(errors.As(err, &busy), busy.Holder, busy.Held < time.Minute)
	// Output: true instance-1 true
}

func ExampleLock_Extend() {
	ctx := context.Background()
	locker := newLocker(nil)
	defer locker.Close(ctx)

	lock := locker.NewLock("memory:session-123", 30*time.Second)
	fmt.Println(lock.Acquire(ctx))
	fmt.Println(lock.Extend(ctx, time.Minute), lock.Release(ctx))
	// Output:
	// true <nil>
	// <nil> <nil>
}
