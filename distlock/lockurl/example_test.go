package lockurl_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
)

func ExampleOpen() {
	ctx := context.Background()
	locker, err := lockurl.Open(ctx, "mem://", nil) // or "redis://localhost:6379/0"
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Println(locker.Backend())
	// Output: memory
}

// The conversations are kept where the locks are, over one client.
func ExampleNewRedisClient() {
	ctx := context.Background()
	client, err := lockurl.NewRedisClient("redis+cluster://localhost:7000,localhost:7001,localhost:7002")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locker, err := redislock.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Printf("%s, %T\n", locker.Backend(), client)
	// Output: redis, *redis.ClusterClient
}
