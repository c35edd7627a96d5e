package main

import (
	"context"
	"fmt"

	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/examples/agent/internal/report"
	"github.com/belugalock/belugalock/examples/agent/internal/scratch"
	"github.com/belugalock/belugalock/lockedmemory"
)

// conversation is the session ID of a conversation, for the store and for its lock.
func conversation(session int) string { return fmt.Sprint("conversation-", session) }

// list is the list of a conversation. Each run has its own.
func (c config) list(servers *scratch.Servers, session int) history.List {
	return history.List{Log: servers.Log(fmt.Sprint(c.Locked, "-", session))}
}

// histories returns the histories of all conversations as they are in the end.
func (c config) histories(ctx context.Context, servers *scratch.Servers) (all [][]history.Message, err error) {
	load := func(session int) ([]history.Message, error) {
		return c.list(servers, session).Load(ctx, "")
	}
	if c.Locked == report.WholeTurn {
		store, err := servers.Store(lockedmemory.SessionKey)
		if err != nil {
			return nil, err
		}
		load = func(session int) ([]history.Message, error) {
			return store.Load(lockedmemory.WithSession(ctx, conversation(session)), "")
		}
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
