package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const prefix = "distlock:{" + key + "}:"

// server is a Redis, or one database.
type server interface {
	Do(args ...string) (string, error)
}

func do(t *testing.T, server server, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

func awaitWaiters(t *testing.T, server server, n int) {
	t.Helper()
	servers.Await(t, 5*time.Second, fmt.Sprint(n, " waiters"), func() bool { return do(t, server, "ZCARD", prefix+"queue") == fmt.Sprint(n) })
}

func listeners(t *testing.T, server server) int {
	t.Helper()
	return strings.Count(do(t, server, "CLIENT", "LIST", "TYPE", "pubsub"), " addr=")
}

func mustAcquire(t *testing.T, l *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRelease(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// waiter acquires in the background.
type waiter struct {
	t     *testing.T
	done  chan struct{}
	lease *distlock.Lease
	err   error
}

func wait(t *testing.T, ctx context.Context, l *distlock.Locker) *waiter {
	w := &waiter{t: t, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx, key, distlock.WithWait(-1))
	}()
	return w
}

func (w *waiter) got(limit time.Duration) *distlock.Lease {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(limit):
		w.t.Fatalf("no lock after %s", limit)
	}
	if w.err != nil {
		w.t.Fatal(w.err)
	}
	return w.lease
}

// A Locker listens on one connection for all waiters and locks: from its first waiter until its
// Close.
func TestQueue_oneSubscriptionPerLocker(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	holders := newLocker(t, newClient(t, server))
	waiters := newLocker(t, newClient(t, server), forever)
	mustRelease(t, mustAcquire(t, waiters))
	holder := mustAcquire(t, holders)
	if _, err := waiters.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Error(err)
	}
	if n := listeners(t, server); n != 0 {
		t.Errorf("%d subscriptions without a waiter", n)
	}
	other, err := holders.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, t.Context(), waiters)
	var second sync.WaitGroup
	second.Go(func() {
		if err := waiters.Do(t.Context(), "other", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
	awaitWaiters(t, server, 1)
	servers.Await(t, 5*time.Second, "a waiter", func() bool { return do(t, server, "ZCARD", "distlock:{other}:queue") == "1" })
	if n := listeners(t, server); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	mustRelease(t, holder)
	mustRelease(t, other)
	mustRelease(t, first.got(10*time.Second))
	second.Wait()
	if err := waiters.Close(t.Context()); err != nil {
		t.Error(err)
	}
	servers.Await(t, 5*time.Second, "without subscriptions", func() bool { return listeners(t, server) == 0 })
}

// A waiter that leaves before its subscription is confirmed causes no warning.
func TestQueue_earlyLeave_noWarning(t *testing.T) {
	server := servers.SharedRedis(t)
	proxy := faultnet.New(t, server.Addr())
	held := proxy.HoldRequests(faultnet.Containing("subscribe"))
	holder := mustAcquire(t, newLocker(t, newClient(t, server)))
	var log strings.Builder
	l := newLocker(t, newClient(t, proxy, redis.Options{DB: server.DB()}), logTo(&log))
	ctx, cancel := context.WithCancel(t.Context())
	w := wait(t, ctx, l)
	held.Wait(1)
	cancel()
	<-w.done
	if !errors.Is(w.err, context.Canceled) {
		t.Error(w.err)
	}
	held.Release()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if log.String() != "" {
		t.Errorf("the log is %q, want no text", log.String())
	}
	mustRelease(t, holder)
}

// A lease from a forged message about a handoff lasts at most as long as the waiter's own promise.
// Its first renewal loses it. A user who can forge a message can also write the keys of the lock.
func TestQueue_N_forgedHandoff_atMostTTL(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	server := servers.StartRedis(t)
	holder := mustAcquire(t, newLocker(t, newClient(t, server)))
	w := wait(t, t.Context(), newLocker(t, newClient(t, server), ttl(limit)))
	awaitWaiters(t, server, 1)
	channel, owner := "", do(t, server, "ZRANGE", prefix+"queue", "0", "0")
	servers.Await(t, 20*time.Second, "a channel", func() bool {
		channel = do(t, server, "PUBSUB", "CHANNELS", "distlock:wake:*")
		return channel != ""
	})
	watch := leakcheck.NewWatch()
	defer watch.Stop()
	sent := time.Now()
	do(t, server, "PUBLISH", channel, owner+" 1 "+fmt.Sprint((200*24*time.Hour).Milliseconds())+" 0 1795225289897391 1795225289917391")
	forged := w.got(20 * time.Second)
	select {
	case <-forged.Context().Done():
	case <-time.After(20 * time.Second):
	}
	lost := time.Now()
	if held := lost.Sub(sent) - watch.Stalled(sent, lost); held > limit {
		t.Errorf("a lease from a forged message was held for %s, its TTL is %s", held, limit)
	}
	if err := forged.Err(); !errors.Is(err, distlock.ErrLost) {
		t.Error(err)
	}
	if err := holder.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, holder)
}
