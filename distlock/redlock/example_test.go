package redlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redlock"
)

func ExampleNew() {
	ctx := context.Background()
	var nodes []redis.UniversalClient
	for _, addr := range []string{"redis-a:6379", "redis-b:6379", "redis-c:6379"} {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		defer client.Close()
		nodes = append(nodes, client)
	}
	locker, err := redlock.New(nodes, &redlock.Options{
		Options:      distlock.Options{TTL: 10 * time.Second},
		RestartDelay: 30 * time.Second, // the largest TTL of all processes
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	err = locker.Do(ctx, "conversation-42", func(ctx context.Context) error {
		return nil // alone with the conversation, also after the loss of one node
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleParseURL() {
	ctx := context.Background()
	clients, restartDelay, err := redlock.ParseURL("redlock+redis://redis-a,redis-b,redis-c/0?restart_delay=30s")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, client := range clients {
		defer client.Close()
	}
	locker, err := redlock.New(clients, &redlock.Options{RestartDelay: restartDelay})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(ctx)
	fmt.Println(fencing.Backend(locker), len(clients), restartDelay)
	// Output: redlock 3 30s
}
