// Package scratch borrows a Redis for a run, and leaves nothing there.
package scratch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock/redislock"
)

// Connect returns a client of the Redis at a lock URL, which has answered.
func Connect(ctx context.Context, url string) (redis.UniversalClient, error) {
	client, err := redislock.ParseURL(url)
	if err != nil {
		return nil, err
	}
	logging.Disable() // go-redis would say on stderr what its calls return as well
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("no answer from Redis: %w", err)
	}
	return client, nil
}

// Remove removes what a run has written: all keys that begin with its name.
func Remove(ctx context.Context, client redis.UniversalClient, run string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return removeFrom(ctx, client, client, run)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return removeFrom(ctx, node, client, run)
	})
}

// removeFrom removes what one node has, one key at a time: in a Cluster, keys of one command must share a slot.
func removeFrom(ctx context.Context, node, client redis.Cmdable, run string) error {
	keys := node.Scan(ctx, 0, run+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
