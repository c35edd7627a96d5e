// Redislock holds a lock in Redis.
package main

import (
	"context"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/redislock"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locker, err := redislock.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	if err := locker.Do(context.Background(), "orders", func(context.Context) error { return nil }); err != nil {
		log.Print(err)
	}
}
