package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

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
		&sessionstore.Retention{Namespace: c.Run + ":session", IdleTTL: history.Keep, RememberTurns: history.Keep}, nil)
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
