package fencing_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/memlock"
)

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
