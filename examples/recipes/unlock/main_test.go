package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

func TestUnlock_bothClients(t *testing.T) {
	t.Run("node", func(t *testing.T) { bothWays(t, servers.SharedRedis(t).URL()) })
	t.Run("cluster", func(t *testing.T) { bothWays(t, servers.SharedTopology("cluster").Cluster.URL()) })
}

func bothWays(t *testing.T, url string) {
	client, err := redislock.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	locks, err := NewLocks(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("no count is lost", func(t *testing.T) { countTogether(t, url, client) })
	t.Run("unlock after cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		held, unlock, err := locks.Lock(ctx, "cancelled", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("the client is gone")
		cancel(gone)
		select {
		case <-held.Done():
		case <-time.After(30 * time.Second):
			t.Error("the work goes on after the end of the caller's context")
		}
		if cause := context.Cause(held); cause != gone {
			t.Errorf("the context of the work has ended with %v", cause)
		}
		if err := errors.Join(unlock(), unlock()); err != nil {
			t.Fatal(err)
		}
		free(t, locks, "cancelled")
	})
	t.Run("unlock after loss", func(t *testing.T) { unlockAfterLoss(t, client, locks) })
}

func countTogether(t *testing.T, url string, client redis.UniversalClient) {
	const instances = 3
	processes := make([]*recipetest.Process, instances)
	for i := range processes {
		processes[i] = recipetest.Start(t, "-lock", url, "-counts", "50")
	}
	for _, p := range processes {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n, err := client.Get(t.Context(), "visits").Int(); n != instances*50 || err != nil {
		t.Errorf("%d instances counted to %d, want %d: %v", instances, n, instances*50, err)
	}
}

// The record of the lock is removed, and another holder has the lock. The first unlock leaves it alone.
func unlockAfterLoss(t *testing.T, client redis.UniversalClient, locks *Locks) {
	held, unlock, err := locks.Lock(t.Context(), "lost", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Del(t.Context(), "visits:{lost}:lock").Err(); err != nil {
		t.Fatal(err)
	}
	other, err := NewLocks(client)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, _, err := other.Lock(t.Context(), "lost", time.Minute); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the context of a lost lock does not end")
	}
	if err := unlock(); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("unlock of a lost lock: %v", err)
	}
	if info, err := locks.locker.Inspect(t.Context(), "lost"); err != nil || !info.Held {
		t.Errorf("unlock has released the lock of another holder: %+v, %v", info, err)
	}
}

func free(t *testing.T, locks *Locks, name string) {
	t.Helper()
	if info, err := locks.locker.Inspect(t.Context(), name); err != nil || info.Held {
		t.Errorf("the lock is not free: %+v, %v", info, err)
	}
}
