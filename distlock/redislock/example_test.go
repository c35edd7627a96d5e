package redislock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/belugalock/belugalock/distlock/redislock"
)

// A client by URL, for the locks and for commands of your own.
func Example() {
	ctx := context.Background()
	client, err := redislock.ParseURL("redis+cluster://localhost:7000,localhost:7001,localhost:7002")
	if err != nil {
		log.Fatal(err)
	}
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

// A closing brace in a key does not end the hash tag, and the key can be read back.
func ExampleHashTag() {
	fmt.Println(redislock.HashTag("conversation-{42}"))
	// Output: {conversation-{42%7D}:
}
