package fencing_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
)

// A lease whose work begins and ends in different functions, where Do does not fit.
func ExampleJoin() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	save := func(ctx context.Context) error {
		return locker.Do(ctx, "conversation-42", func(context.Context) error { return nil })
	}

	lease, err := locker.Acquire(ctx, "conversation-42")
	if err != nil {
		fmt.Println(err)
		return
	}
	work, leave := fencing.Join(ctx, lease)
	fmt.Println("inside:", save(work)) // it does not wait for the lease, it is part of it
	leave()
	_ = lease.Release(ctx)
	fmt.Println("later:", save(work))
	// Output:
	// inside: <nil>
	// later: distlock: lock not held by this instance: it was released
}

// A store has seen a token from before the backend lost its data.
func ExampleRaiseToken() {
	ctx := context.Background()
	locker, err := memlock.New(nil)
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)
	lease, err := locker.Acquire(ctx, "conversation-42")
	if err != nil {
		panic(err)
	}

	mark := lease.Fence() + 1000
	err = fencing.RaiseToken(ctx, lease, mark)
	fmt.Println(lease.Fence() > mark, err)
	// Output: true <nil>
}
