package redislock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redislock"
)

func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	locker, err := redislock.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		return nil // alone with the conversation, on all machines
	})
	if err != nil {
		log.Print(err)
	}
}

// The conversations are kept where the locks are, over one client.
func ExampleParseURL() {
	ctx := context.Background()
	client, err := redislock.ParseURL("redis+cluster://localhost:7000,localhost:7001,localhost:7002")
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
	fmt.Printf("%s, %T\n", fencing.Backend(locker), client)
	// Output: redis, *redis.ClusterClient
}

// A closing brace in a key does not end the hash tag, and the key can be read back.
func ExampleHashTag() {
	fmt.Println(redislock.HashTag("conversation-{42}"))
	// Output: {conversation-{42%7D}:
}
