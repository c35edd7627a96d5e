package memlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func ExampleNew() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	fmt.Println(locker.Do(ctx, "conversation-42", func(context.Context) error { return nil }))
	// Output: <nil>
}

// Two Lockers over one driver compete, as two processes over one Redis do.
func ExampleNewDriver() {
	ctx := context.Background()
	locks := memlock.NewDriver()
	first, err := distlock.New(locks, &distlock.Options{Holder: "first"})
	if err != nil {
		panic(err)
	}
	defer first.Close(ctx)
	second, err := distlock.New(locks, nil)
	if err != nil {
		panic(err)
	}
	defer second.Close(ctx)
	err = first.Do(ctx, "order-42", func(ctx context.Context) error {
		return second.TryDo(ctx, "order-42", func(context.Context) error { return nil })
	})
	fmt.Println(errors.Is(err, distlock.ErrNotAcquired))
	// Output: true
}
