package scratch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// onRedis is a Redis in which all keys of a run begin with its name.
// The log of go-redis would say on stderr what its calls return as well. It has no lock of its own, so
// it is switched off before the first client.
func init() { logging.Disable() }

type onRedis struct {
	client redis.UniversalClient
	run    string
}

func newRedis(url, run string) (store, error) {
	client, err := redislock.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return onRedis{client, run}, nil
}

func (r onRedis) Prepare(ctx context.Context) error {
	if err := r.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("no answer from Redis: %w", err)
	}
	return nil
}

func (r onRedis) Log(name string) history.Log {
	return redisLog{r.client, r.run + ":list:" + name}
}

// redisLog is a list of Redis.
type redisLog struct {
	client redis.UniversalClient
	key    string
}

func (l redisLog) Append(ctx context.Context, message []byte) error {
	pipe := l.client.Pipeline()
	pipe.RPush(ctx, l.key, message)
	pipe.Expire(ctx, l.key, keep)
	_, err := pipe.Exec(ctx)
	return err
}

func (l redisLog) All(ctx context.Context) (messages [][]byte, err error) {
	err = l.client.LRange(ctx, l.key, 0, -1).ScanSlice(&messages)
	return messages, err
}

// Locker and Store share a client: the store then knows that the lock is on its own Redis.
func (r onRedis) Locker(_ context.Context, opts distlock.Options) (*distlock.Locker, error) {
	opts.Namespace = r.run
	return redislock.New(r.client, &opts)
}

func (r onRedis) Store(key lockedmemory.KeyFunc) (*history.Store, error) {
	return redisstore.New(r.client, key, sessionstore.JSON[history.Message]{},
		&sessionstore.Retention{Namespace: r.run + ":session", IdleTTL: keep, RememberIDs: keep}, nil)
}

func (r onRedis) Close() { _ = r.client.Close() }

func (r onRedis) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.removeFrom(ctx, r.client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return r.removeFrom(ctx, node)
	})
}

// removeFrom removes the keys of one node, one at a time: in a Cluster, keys of one command must share a
// slot.
func (r onRedis) removeFrom(ctx context.Context, node redis.Cmdable) error {
	keys := node.Scan(ctx, 0, r.run+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := r.client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
