package docs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

var storeTroubles = map[string]func(t *testing.T) error{
	"no server during a turn": func(t *testing.T) error {
		s := ownServer(t)
		return s.turn(t, func(ctx context.Context) error {
			s.server.Kill()
			return s.memory.Save(ctx, "question", "answer")
		})
	},
	"a server that hangs during a turn": func(t *testing.T) error {
		s := ownServer(t)
		return s.turn(t, func(ctx context.Context) error {
			s.server.Pause()
			defer s.server.Resume()
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			return s.memory.Save(ctx, "question", "answer")
		})
	},
	"a master without replicas": func(t *testing.T) (err error) {
		for range 20 { // the deadline may cut off the last attempt
			if err = underSetting(t, "min-replicas-to-write", "1"); err == nil || strings.Contains(err.Error(), "NOREPLICAS") {
				break
			}
		}
		return err
	},
	"no memory": func(t *testing.T) error { return underSetting(t, "maxmemory", "1") },
	"overtaken": func(t *testing.T) error {
		s := ownServer(t)
		var stale context.Context
		if err := s.turn(t, func(ctx context.Context) error { stale = context.WithoutCancel(ctx); return nil }); err != nil {
			t.Fatal(err)
		}
		return s.turn(t, func(context.Context) error { return s.store.Save(stale, "question", "answer") })
	},
	"a damaged mark": func(t *testing.T) error {
		s := ownServer(t)
		if _, err := s.server.Do("XADD", "session:{session}:log", fmt.Sprintf("%d-1", driver.MaxFence), "field", "value"); err != nil {
			t.Fatal(err)
		}
		return s.memory.Save(t.Context(), "question", "answer")
	},
	"an ID that is known": func(t *testing.T) error {
		s := ownServer(t)
		return s.turn(t, func(ctx context.Context) error {
			if err := s.memory.SaveOnce(ctx, "1", "question", "answer"); err != nil {
				t.Fatal(err)
			}
			return s.memory.SaveOnce(ctx, "1", "question", "another answer")
		})
	},
	"a session that disappears during a turn": func(t *testing.T) error {
		s := ownServer(t)
		return s.turn(t, func(ctx context.Context) error {
			if err := s.memory.Save(ctx, "question", "answer"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.server.Do("DEL", "session:{session}:log"); err != nil {
				t.Fatal(err)
			}
			return s.memory.Save(ctx, "question", "answer")
		})
	},
	"an entry of another program": func(t *testing.T) error {
		s := ownServer(t)
		if _, err := s.server.Do("XADD", "session:{session}:log", "*", "field", "value"); err != nil {
			t.Fatal(err)
		}
		_, err := s.memory.Load(t.Context(), "")
		return err
	},
}

// stored is a session in Redis.
type stored struct {
	server *testservers.Redis
	store  *sessionstore.Store[string, string]
	memory *lockedmemory.LockedMemory[string, string]
}

func ownServer(t *testing.T) *stored {
	t.Helper()
	server := testservers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	s := newStored(t, client)
	s.server = server
	return s
}

func newStored(t *testing.T, client redis.UniversalClient) *stored {
	t.Helper()
	s := &stored{}
	locker, err := redislock.New(client, &distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close(context.Background()) })
	key := lockedmemory.FixedKey("session")
	if s.store, err = redisstore.New(client, key, sessionstore.JSON[string]{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if s.memory, err = lockedmemory.New(s.store, locker, key, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// turn runs fn in a turn, after a Load, and returns its error.
func (s *stored) turn(t *testing.T, fn func(context.Context) error) (err error) {
	t.Helper()
	turned := s.memory.Turn(t.Context(), func(ctx context.Context) error {
		if _, err := s.memory.Load(ctx, ""); err != nil {
			t.Fatal(err)
		}
		err = fn(ctx)
		return nil
	})
	if err == nil && turned != nil {
		t.Fatal(turned)
	}
	return err
}

// underSetting is a Save in a turn under which a setting of the server has changed. The store retries until
// the deadline.
func underSetting(t *testing.T, setting, value string) error {
	s := ownServer(t)
	return s.turn(t, func(ctx context.Context) error {
		if _, err := s.server.Do("CONFIG", "SET", setting, value); err != nil {
			t.Fatal(err)
		}
		defer s.server.Do("CONFIG", "SET", setting, "0")
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return s.memory.Save(ctx, "question", "answer")
	})
}
