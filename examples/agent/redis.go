package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// connect returns a client of the Redis at a lock URL, which has answered.
func connect(ctx context.Context, url string) (redis.UniversalClient, error) {
	client, err := lockurl.NewRedisClient(url)
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

type conversationKey struct{}

// withConversation says for the memory which conversation a call is about.
func withConversation(ctx context.Context, session int) context.Context {
	return context.WithValue(ctx, conversationKey{}, fmt.Sprint("conversation-", session))
}

// conversation is the KeyFunc of the store and of its lock.
func conversation(ctx context.Context) (string, error) {
	name, _ := ctx.Value(conversationKey{}).(string)
	return name, nil
}

// openStore opens the histories of the run with the lock.
func (c config) openStore(client redis.UniversalClient) (*sessionstore.Store[history.Message, history.Message], error) {
	return redisstore.New(client, conversation, sessionstore.JSON[history.Message]{},
		&sessionstore.Options{Namespace: c.Run + ":session", IdleTTL: history.Keep, RememberTurns: history.Keep})
}

// listKey is where a history of the run without the lock is.
func (c config) listKey(session int) string { return fmt.Sprint(c.Run, ":list:", session) }

// load returns a history as it is in the end.
func (c config) load(ctx context.Context, client redis.UniversalClient, session int) ([]history.Message, error) {
	if !c.Locked {
		return history.NewList(client, c.listKey(session)).Load(ctx, "")
	}
	store, err := c.openStore(client)
	if err != nil {
		return nil, err
	}
	return store.Load(withConversation(ctx, session), "")
}

// removeKeys removes what a run has written: histories, locks and their counters.
func removeKeys(ctx context.Context, client redis.UniversalClient, run string) error {
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
