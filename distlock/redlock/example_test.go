package redlock_test

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redlock"
)

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
