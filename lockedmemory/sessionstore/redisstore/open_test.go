package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// Lock and store have one client: where a session has no log, the store asks the lock for its
// owner. Both end with the Locker.
func TestOpen_lockAndStore_oneClient(t *testing.T) {
	t.Parallel()
	server := servers.SharedServer()
	key := lockedmemory.FixedKey(t.Name())
	locker, store, err := redisstore.Open(t.Context(), "redis://"+server.Addr(), key, sessionstore.JSON[string]{},
		&redisstore.Options{
			Lock:      distlock.Options{TTL: time.Minute},
			Retention: sessionstore.Retention{Namespace: "opened", IdleTTL: time.Hour},
			Store:     sessionstore.Options{Window: 1},
		})
	must(t, err)
	memory, err := lockedmemory.New(store, locker, key, nil)
	must(t, err)
	must(t, errors.Join(memory.Save(t.Context(), "first", ""), memory.Save(t.Context(), "q", "a")))
	if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, []string{"q", "a"}) {
		t.Errorf("Load with a window of 1: %q, %v", got, err)
	}
	client := newRig(t).client
	prefix := "opened:{" + t.Name() + "}:"
	if life := client.PTTL(t.Context(), prefix+"log").Val(); life <= 0 || life > time.Hour {
		t.Errorf("the log lives for %s, want at most 1 h", life)
	}
	var late context.Context
	must(t, memory.Turn(t.Context(), func(ctx context.Context) error { late = context.WithoutCancel(ctx); return nil }))
	must(t, client.Del(t.Context(), prefix+"log", prefix+"mark").Err())
	var stale *sessionstore.StaleError
	if err := store.Save(late, "late", ""); !errors.As(err, &stale) || stale.MarkToken != 0 {
		t.Errorf("a Save after the turn, in a session without a log and a mark: %v; want a StaleError without a mark", err)
	}
	must(t, locker.Close(t.Context()))
	if _, err := store.Load(t.Context(), ""); !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("Load after the Locker's Close: %v", err)
	}
}

// Two applications that differ in the namespace of their locks share no session.
func TestOpen_namespaceOfTheLocks_keepsSessionsApart(t *testing.T) {
	t.Parallel()
	server := servers.SharedServer()
	client := newRig(t).client
	key := lockedmemory.FixedKey(t.Name())
	for namespace, prefix := range map[string]string{"support": "support:session", "sales": "sales:session"} {
		locker, store, err := redisstore.Open(t.Context(), "redis://"+server.Addr(), key, sessionstore.JSON[string]{},
			&redisstore.Options{Lock: distlock.Options{Namespace: namespace}})
		must(t, err)
		memory, err := lockedmemory.New(store, locker, key, nil)
		must(t, err)
		must(t, memory.Save(t.Context(), namespace, "a"))
		if got, err := memory.Load(t.Context(), ""); err != nil || !slices.Equal(got, []string{namespace, "a"}) {
			t.Errorf("Load in %s: %q, %v", namespace, got, err)
		}
		if n := client.Exists(t.Context(), prefix+":{"+t.Name()+"}:log").Val(); n != 1 {
			t.Errorf("no log under %s", prefix)
		}
		must(t, locker.Close(t.Context()))
	}
}

// The leak check of this package sees a client that stays open.
func TestOpen_badInput_nothingStaysOpen(t *testing.T) {
	t.Parallel()
	url, key := "redis://"+servers.SharedServer().Addr(), lockedmemory.FixedKey("s")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(ctx context.Context, url string, key lockedmemory.KeyFunc, opts *redisstore.Options, want error) {
		t.Helper()
		_, _, err := redisstore.Open(ctx, url, key, sessionstore.JSON[string]{}, opts)
		if !errors.Is(err, want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %v, without the password", err, want)
		}
	}
	fails(ended, url, key, nil, context.Canceled)
	fails(t.Context(), "redis://user:secret@:port", key, nil, distlock.ErrInvalidOption)
	fails(t.Context(), url, nil, nil, distlock.ErrInvalidOption)
	for _, opts := range []*redisstore.Options{
		{Lock: distlock.Options{TTL: -1}}, {Retention: sessionstore.Retention{IdleTTL: 1}}, {Store: sessionstore.Options{Window: -1}},
	} {
		fails(t.Context(), url, key, opts, distlock.ErrInvalidOption)
	}
}
