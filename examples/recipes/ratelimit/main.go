// Command ratelimit calls an API. All its instances together keep to one rate.
//
//	go run ./examples/recipes/ratelimit -rate 10 &
//	go run ./examples/recipes/ratelimit -rate 10
//
// It holds no lock: a lock bounds how many calls run at once, and a rate bounds how many begin in a second.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/belugalock/belugalock/distlock/redislock"
)

func main() {
	url := flag.String("redis", cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), "URL of the Redis")
	rate := flag.Int("rate", 10, "calls per second of all instances together, a little below the contract: calls arrive unevenly")
	burst := flag.Int("burst", 1, "calls that may begin at once after a pause")
	calls := flag.Int("calls", 100, "how often to call")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := redislock.ParseURL(*url) // the client for the locks of the application
	if err != nil {
		log.Fatal(err)
	}
	limit := redis_rate.Limit{Rate: *rate, Burst: *burst, Period: time.Second} // equal in every instance
	if err := errors.Join(run(ctx, redis_rate.NewLimiter(client), limit, *calls), client.Close()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, limiter *redis_rate.Limiter, limit redis_rate.Limit, calls int) error {
	for range calls {
		if err := await(ctx, limiter, limit); err != nil {
			return err
		}
		log.Print("call") // your call
	}
	return nil
}

// await returns when the caller may call. If Redis is down, await returns the error of go-redis as it
// is, so no call exceeds the rate.
func await(ctx context.Context, limiter *redis_rate.Limiter, limit redis_rate.Limit) error {
	for {
		answer, err := limiter.Allow(ctx, "partner-api", limit) // the key is rate:partner-api
		if err != nil || answer.Allowed > 0 {
			return err
		}
		select {
		case <-time.After(answer.RetryAfter): // another instance may come first, so ask again
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
