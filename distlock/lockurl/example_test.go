package lockurl_test

import (
	"context"
	"fmt"

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
	fmt.Println(locker.Ping(ctx))
	// Output: <nil>
}

func ExampleSplit() {
	address, options, err := lockurl.Split("redis://localhost:6379/0?namespace=chat&ttl=10s")
	fmt.Println(address, options.Namespace, options.TTL, err)
	// Output: redis://localhost:6379/0 chat 10s <nil>
}
