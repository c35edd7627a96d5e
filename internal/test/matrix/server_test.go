package matrix

import (
	"errors"
	"strings"
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
	l := locker(t, s.client(t, asApp), distlock.Options{TTL: ttl})
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
	next := mustAcquire(t, locker(t, s.client(t, asApp), distlock.Options{TTL: ttl}), key)
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
	l := locker(t, client, distlock.Options{TTL: ttl})
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
	l := locker(t, s.client(t), distlock.Options{TTL: ttl, RenewEvery: 500 * time.Millisecond})
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
	if _, err := locker(t, s.client(t), distlock.Options{}).TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
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
	l := locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: ttl})
	mustRelease(t, mustAcquire(t, l, key))
	failover := s.failover(key)
	failover.awaitReplicas() // or the release may be lost
	failover.kill()
	start := time.Now()
	_, err := l.TryAcquire(t.Context(), key)
	wants(t, "TryAcquire", err, distlock.ErrUnavailable)
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
		l := locker(t, s.client(t), distlock.Options{TTL: ttl})
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

// Without memory, no lock is granted to a new owner, and nothing is written. Leases are renewed,
// extended and released, and a release hands the lock to the first waiter.
func outOfMemory(t *testing.T, s *service) {
	const key, ttl = "outOfMemory", time.Second
	l := locker(t, s.client(t), distlock.Options{TTL: ttl})
	renewed, extended := mustAcquire(t, l, key+"-renewed"), mustAcquire(t, l, key+"-extended")
	handed := mustAcquire(t, l, key+"-handed")
	waiter := enqueue(t, s, locker(t, s.client(t), distlock.Options{TTL: time.Minute, Wait: -1}), handed.Key(), 1)
	s.everywhere(t, "CONFIG", "SET", "maxmemory", "1")
	defer s.everywhere(t, "CONFIG", "SET", "maxmemory", "0")

	mustRelease(t, handed)
	next := waiter.lease(time.Second)
	rises(t, handed.Fence(), next.Fence())
	mustRelease(t, next)
	start := time.Now()
	_, err := l.Acquire(t.Context(), key)
	wants(t, "Acquire", err, distlock.ErrRefused)
	if keys := mustDo(t, s.master(key), "EXISTS", lockKey(key), queueKey(key), waitersKey(key), tombstonesKey(key)); keys != "0" {
		t.Errorf("a refused Acquire has written %s keys", keys)
	}
	if err == nil || !strings.Contains(err.Error(), "OOM") || !soon(start, time.Second) {
		t.Errorf("Acquire: %v after %s; want OOM, at once", err, time.Since(start))
	}
	if err := extended.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("Extend: %v", err)
	}
	keeps(t, renewed, 2*ttl)
	mustRelease(t, renewed)
	mustRelease(t, extended)
	for _, key := range []string{key, renewed.Key(), extended.Key(), handed.Key()} {
		s.gone(t, key)
		s.expires(t, key)
	}
	s.everywhere(t, "CONFIG", "SET", "maxmemory", "0")
	mustRelease(t, mustAcquire(t, l, key))
}

// The node reads its data from disk. A call that waits goes on when that is over, or ends with its
// wait.
func loading(t *testing.T, s *service) {
	const key, wait = "loading", time.Second
	node := s.master(key)
	l := locker(t, s.client(t), distlock.Options{Wait: wait})
	mustDo(t, node, "DEBUG", "POPULATE", "20000")
	mustDo(t, node, "CONFIG", "SET", "key-load-delay", "100", "loading-process-events-interval-bytes", "1024")
	var reloading sync.WaitGroup
	reloading.Go(func() { _, _ = node.Do("DEBUG", "RELOAD") })
	servers.Within(5*time.Second, func() bool {
		_, err := node.Do("GET", "x")
		return err != nil
	})
	start := time.Now()
	_, err := l.Acquire(t.Context(), key)
	took := time.Since(start)
	wants(t, "Acquire, for good", err, distlock.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "LOADING") || took < wait/2 || took > 2*wait {
		t.Errorf("for good: %v after %s; want LOADING after %s", err, took, wait)
	}
	time.AfterFunc(wait/3, func() { _, _ = node.Do("CONFIG", "SET", "key-load-delay", "0") })
	lease, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatalf("for a while: %v after %s", err, time.Since(start))
	}
	mustRelease(t, lease)
	s.gone(t, key)
	reloading.Wait()
}

// The record is at one master already, and missing keys would be at another. Scripts with the
// record alone go on, and the others work without the queue.
func slotOnTheMove(t *testing.T, s *service) {
	const key, ttl = "slotOnTheMove", 2 * time.Second
	l := locker(t, s.client(t), distlock.Options{TTL: ttl, RenewEvery: 200 * time.Millisecond})
	lease := mustAcquire(t, l, key)
	finish := s.Cluster.BeginMove(lockKey(key), lockKey(key))
	defer finish()
	keeps(t, lease, ttl)
	other := locker(t, s.client(t), distlock.Options{Wait: time.Second})
	_, err := other.Acquire(t.Context(), key)
	wants(t, "another client", err, distlock.ErrNotAcquired)
	mustRelease(t, lease)
	next := mustAcquire(t, locker(t, s.client(t), distlock.Options{}), key)
	rises(t, lease.Fence(), next.Fence())
	mustRelease(t, next)
	finish()
	s.gone(t, key)
}
