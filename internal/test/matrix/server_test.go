package matrix

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The Sentinels cannot reach the master any more, and replace it. It lives on, believes to be the
// master, and answers its clients: they must not go on with it.
func masterReplacedButAlive(t *testing.T, s *service) {
	const key, ttl = "masterReplacedButAlive", 3 * time.Second
	asApp := s.user(t, "app", "~*", "+@all")
	l := s.locker(t, asApp, withTTL(ttl))
	mustRelease(t, mustAcquire(t, l, key))
	old := s.master(key)
	alive := redis.NewClient(&redis.Options{Addr: old.Addr(), Username: "app", Password: servers.UserPassword})
	defer alive.Close()
	old.Detach()
	lease := mustAcquire(t, l, key) // which no other node will ever know of
	if err := alive.ACLSetUser(t.Context(), "default", "-@all").Err(); err != nil {
		t.Fatal(err)
	}
	s.AwaitMaster(lockKey(key), old)
	// The Sentinel that the client listens to may be the last to know; they talk to each other
	// every two seconds.
	start := time.Now()
	lostWithin(t, lease, 5*time.Second+ttl/3)
	if err := alive.PExpire(t.Context(), lockKey(key), time.Minute).Err(); err != nil {
		t.Errorf("the old master does not answer, so this shows nothing: %v", err)
	}
	next := mustAcquire(t, s.locker(t, asApp, withTTL(ttl)), key)
	rises(t, lease.Fence(), next.Fence())
	t.Logf("the holder was told %s after the failover", time.Since(start).Round(time.Millisecond))
	mustRelease(t, next)
}

// Without Sentinels there is no failover. The master is well, and the holders of locks go on.
func sentinelsGone(t *testing.T, s *service) {
	const key, ttl = "sentinelsGone", 2 * time.Second
	// A call that is not answered within milliseconds gives its connection up, and there will be no
	// other.
	const spare = 4
	client := s.client(t, ofRedis(func(o *redis.UniversalOptions) { o.MinIdleConns = spare }))
	l := locker(t, client, withTTL(ttl))
	servers.Await(t, 5*time.Second, "connections to spare", func() bool { return client.redis.PoolStats().IdleConns >= spare })
	lease := mustAcquire(t, l, key)
	for _, sentinel := range s.Sentinels() {
		sentinel.Kill()
	}
	keeps(t, lease, 2*ttl)
	mustRelease(t, lease)
	mustRelease(t, mustAcquire(t, l, key))
}

// The holder notices nothing of a failover that keeps the lock.
func failoverKeepsTheLock(t *testing.T, s *service) {
	const key, ttl = "failoverKeepsTheLock", 12 * time.Second
	l := s.locker(t, withTTL(ttl), renewing(500*time.Millisecond))
	lease := mustAcquire(t, l, key)
	failover := s.failover(key)
	failover.awaitReplicas()
	failover.kill()
	failover.awaitMaster()
	left := s.lifetimes(t, 1)
	renewed := servers.Within(ttl/2, func() bool {
		left, err := left(t.Context(), key)
		return err == nil && left > ttl-time.Second
	})
	if err := lease.Err(); err != nil || !renewed {
		t.Errorf("the holder: %v; renewed at the new master: %t", err, renewed)
	}
	if _, err := s.locker(t).TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Errorf("another client: %v", err)
	}
	// The connections of some client may be the last to learn of the new master; then it goes on in
	// the background.
	if err := lease.Release(t.Context()); err != nil {
		wantsWrite(t, "Release", err)
	}
	s.gone(t, key)
}

// A caller that asks for a lock while there is no master waits for the next one.
func failoverIsWaitedFor(t *testing.T, s *service) {
	const key, ttl = "failoverIsWaitedFor", 20 * time.Second
	l := s.locker(t, withTTL(ttl), withWait(ttl))
	mustRelease(t, mustAcquire(t, l, key))
	failover := s.failover(key)
	failover.awaitReplicas() // or the release may be lost
	failover.kill()
	start := time.Now()
	if early, err := l.TryAcquire(t.Context(), key); err == nil && time.Since(start) > time.Second {
		mustRelease(t, early) // there is another master already
	} else {
		wants(t, "TryAcquire", err, distlock.ErrUnavailable)
	}
	var replacing sync.WaitGroup
	replacing.Go(failover.awaitMaster)
	lease := mustAcquire(t, l, key)
	replacing.Wait()
	t.Logf("the lock came %s after the master had died", time.Since(start).Round(time.Millisecond))
	mustRelease(t, lease)
	s.gone(t, key)
}

// A client sends scripts again that the server has lost.
func scriptsFlushed(t *testing.T, s *service) {
	unlessStalled(t, "scriptsFlushed", func(t testing.TB, key string) {
		const ttl = 500 * time.Millisecond
		var flushing sync.WaitGroup
		t.Cleanup(flushing.Wait)
		flushing.Go(func() {
			for t.Context().Err() == nil {
				s.everywhere(t, "SCRIPT", "FLUSH")
			}
		})
		l := s.locker(t, withTTL(ttl))
		kept := mustAcquire(t, l, key+"-kept")
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
			lease := mustAcquire(t, l, key)
			if err := lease.Extend(t.Context(), ttl); err != nil {
				t.Errorf("Extend: %v", err)
			}
			mustRelease(t, lease)
		}
		if err := kept.Err(); err != nil {
			t.Errorf("a lease that is renewed at the same time: %v", err)
		}
		mustRelease(t, kept)
	})
}

// The record is at one master already, and missing keys would be at another. Scripts with the
// record alone go on, and the others work without the queue.
func slotOnTheMove(t *testing.T, s *service) {
	const key, ttl = "slotOnTheMove", 2 * time.Second
	l := s.locker(t, withTTL(ttl), renewing(200*time.Millisecond))
	lease := mustAcquire(t, l, key)
	finish := s.Cluster.BeginMove(lockKey(key), lockKey(key))
	defer finish()
	keeps(t, lease, ttl)
	other := s.locker(t, withWait(time.Second))
	_, err := other.Acquire(t.Context(), key)
	wants(t, "another client", err, distlock.ErrNotAcquired)
	mustRelease(t, lease)
	next := mustAcquire(t, s.locker(t), key)
	rises(t, lease.Fence(), next.Fence())
	mustRelease(t, next)
	finish()
	s.gone(t, key)
}
