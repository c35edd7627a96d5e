package election_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/election"
	"github.com/belugalock/belugalock/distlock/memlock"
)

func ExampleRun() {
	ctx := context.Background()
	locker, err := memlock.New(&distlock.Options{Holder: "instance-1"})
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx) // after Run has returned

	err = election.Run(ctx, locker, "scheduler", func(ctx context.Context) error {
		lease, _ := locker.FromContext(ctx, "scheduler")
		info, err := election.Leader(ctx, locker, "scheduler")
		fmt.Println(info.Holder, "leads, with a token:", lease.Fence() > 0)
		return err
	})
	fmt.Println(err)
	// Output:
	// instance-1 leads, with a token: true
	// <nil>
}

func ExampleLeader() {
	ctx := context.Background()
	locker, err := memlock.New(&distlock.Options{Holder: "instance-1"})
	if err != nil {
		panic(err)
	}
	defer locker.Close(ctx)

	show := func() {
		info, err := election.Leader(ctx, locker, "scheduler")
		if err != nil {
			panic(err)
		}
		if info.Held {
			fmt.Printf("%s leads since %s\n", info.Holder, info.Age.Round(time.Minute))
		} else {
			fmt.Println("no leader")
		}
	}
	show()
	err = election.Run(ctx, locker, "scheduler", func(context.Context) error {
		show()
		return nil
	})
	fmt.Println(err)
	// Output:
	// no leader
	// instance-1 leads since 0s
	// <nil>
}
