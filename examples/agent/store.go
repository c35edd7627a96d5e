package main

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
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

// histories returns the histories of all conversations as they are in the end.
func (c config) histories(ctx context.Context, servers *scratch.Servers) (all [][]history.Message, err error) {
	load := func(session int) ([]history.Message, error) {
		return history.List{Log: servers.Log(session)}.Load(ctx, "")
	}
	if c.Locked {
		store, err := servers.Store(conversation)
		if err != nil {
			return nil, err
		}
		load = func(session int) ([]history.Message, error) { return store.Load(withConversation(ctx, session), "") }
	}
	for session := range c.Sessions {
		messages, err := load(session)
		if err != nil {
			return nil, err
		}
		all = append(all, messages)
	}
	return all, nil
}
