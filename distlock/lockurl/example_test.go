package lockurl_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
)

func ExampleOpen() {
	ctx := context.Background()
	// Or "redis://localhost:6379/0?namespace=chat&ttl=10s".
	locker, err := lockurl.Open(ctx, "mem://?namespace=chat&ttl=10s", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Println(fencing.Backend(locker))
	// Output: memory
}

// A test puts faults between the Locker and its backend.
func ExampleOpenDriver() {
	d, err := lockurl.OpenDriver("mem://")
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := distlock.New(drivertest.NewFaults(d), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(context.Background())
	fmt.Println(fencing.Backend(locker))
	// Output: memory
}

func ExampleSplit() {
	address, options, err := lockurl.Split("redis://localhost:6379/0?namespace=chat&ttl=10s")
	fmt.Println(address, options.Namespace, options.TTL, err)
	// Output: redis://localhost:6379/0 chat 10s <nil>
}
