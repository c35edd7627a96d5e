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
		info, err := election.Leader(ctx, locker, "scheduler") // any instance may ask
		fmt.Printf("%s leads since %s, with a token: %t\n", info.Holder, info.Age.Round(time.Minute), lease.Fence() > 0)
		return err
	})
	fmt.Println(err)
	// Output:
	// instance-1 leads since 0s, with a token: true
	// <nil>
}
