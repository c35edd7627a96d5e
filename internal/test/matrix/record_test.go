package matrix

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// An operator has a hand in the record of a lock.

// recordDamaged: a damaged record is refused, and stays as it is. Its holder loses the lease at the
// deadline, and no client is granted the lock until an operator removes the record.
func recordDamaged(t *testing.T, s *service) {
	const key, ttl = "recordDamaged", 2 * time.Second
	lease := mustAcquire(t, locker(t, s.client(t), distlock.Options{TTL: ttl}), key)
	mustDo(t, s.master(key), "SETRANGE", lockKey(key), "83", "x") // the last digit of the token
	damaged := mustDo(t, s.master(key), "GET", lockKey(key))

	other := locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: -1})
	start := time.Now()
	_, err := other.Acquire(t.Context(), key)
	extended := lease.Extend(t.Context(), ttl)
	for what, err := range map[string]error{"Acquire": err, "Extend": extended} {
		wants(t, what, err, distlock.ErrRefused, driver.ErrForeign)
		if err != nil && !strings.Contains(err.Error(), "remove the") {
			t.Errorf("%s: %v; want advice", what, err)
		}
	}
	if !soon(start, time.Second) {
		t.Errorf("two refusals took %s", time.Since(start))
	}
	lostWithin(t, lease, ttl)
	_ = lease.Release(t.Context())
	if now := mustDo(t, s.master(key), "GET", lockKey(key)); now != damaged {
		t.Errorf("the record was %q, and is %q", damaged, now)
	}
	s.mustAsk(t, deleteRecord, key)
	next := mustAcquire(t, other, key)
	rises(t, lease.Fence(), next.Fence())
	mustRelease(t, next)
	s.gone(t, key)
}

// recordDeleted: the record of a lock is deleted again and again under load. Tokens follow the clock
// of the server, a holder learns of its loss, and no waiter is left behind.
func recordDeleted(t *testing.T, s *service) {
	const key, ttl, lasts = "recordDeleted", 2 * time.Second, time.Second
	opts := distlock.Options{TTL: ttl, Wait: -1}
	load, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var workers sync.WaitGroup
	for range 4 {
		l := locker(t, s.client(t), opts) // one worker each, so each token is one of the backend
		workers.Go(func() {
			for load.Err() == nil {
				called := time.Now()
				lease, err := l.Acquire(t.Context(), key)
				if err != nil {
					t.Errorf("under load: %v", err)
					return
				}
				got := time.Now()
				if ahead := lease.Fence() - driver.FenceBlock; lease.Fence() < called.UnixMicro() || ahead > got.UnixMicro() {
					t.Errorf("fence %d from %d to %d: more than a block apart from the clock", lease.Fence(), called.UnixMicro(), got.UnixMicro())
				}
				if err := lease.Release(t.Context()); err != nil {
					wants(t, "Release of a deleted lock", err, distlock.ErrLost)
				}
			}
		})
	}
	for load.Err() == nil {
		s.mustAsk(t, deleteRecord, key)
		time.Sleep(lasts / 50)
	}
	deleted := time.Now()
	workers.Wait()
	recovered(t, deleted, ttl/2+time.Second) // a waiter asks at the latest after half of its TTL

	// The queue outlives the record. A newcomer overtakes it once.
	lost := mustAcquire(t, locker(t, s.client(t), opts), key)
	waiter := enqueue(t, s, locker(t, s.client(t), opts), key, 1)
	s.mustAsk(t, deleteRecord, key)
	newcomer, err := locker(t, s.client(t), distlock.Options{TTL: time.Minute}).TryAcquire(t.Context(), key)
	if err != nil {
		if !errors.Is(err, distlock.ErrNotAcquired) {
			t.Fatal(err)
		}
		newcomer = waiter.lease(time.Second) // it has asked in between
	} else {
		s.awaitAnswer(t, ttl/2+time.Second, "b2H", key, recordOfQueue)
	}
	lostWithin(t, lost, ttl)
	mustRelease(t, newcomer)
	mustRelease(t, waiter.lease(ttl))
	s.gone(t, key)
	s.expires(t, key)
}

// recordWithoutTTL: a record that was restored without a TTL is held until its owner extends or
// releases it, or an operator breaks it. Then it expires again.
func recordWithoutTTL(t *testing.T, s *service) {
	for name, strip := range map[string]func(key string){
		"PERSIST": func(key string) { mustDo(t, s.master(key), "PERSIST", lockKey(key)) },
		"RESTORE": func(key string) {
			dump := mustDo(t, s.master(key), "DUMP", lockKey(key))
			mustDo(t, s.master(key), "RESTORE", lockKey(key), "0", dump, "REPLACE")
		},
	} {
		const ttl = time.Second
		key := "recordWithoutTTL-" + name
		endless := func() bool { return mustDo(t, s.master(key), "PTTL", lockKey(key)) == "-1" }
		l := locker(t, s.client(t), distlock.Options{TTL: ttl, Wait: -1})

		lease := mustAcquire(t, l, key)
		strip(key)
		servers.Await(t, ttl, "a renewal gives the record a TTL", func() bool { return !endless() })
		strip(key)
		mustRelease(t, lease)
		s.expires(t, key)

		// A holder that has died.
		d, err := redislock.NewDriver(s.client(t).redis)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		dead := driver.AcquireRequest{Name: driver.Name{Namespace: namespace, Key: key}, Owner: strings.Repeat("d", 32), TTL: ttl / 10}
		granted, err := d.Acquire(t.Context(), dead)
		if err != nil || granted.Outcome != driver.Granted {
			t.Fatalf("Acquire: %+v, %v", granted, err)
		}
		strip(key)
		waiter := enqueue(t, s, l, key, 1)
		if servers.Within(ttl, func() bool { return !endless() }) {
			t.Errorf("%s: the lock has ended by itself", name)
		}
		if info, err := l.Inspect(t.Context(), key); err != nil || !info.Held || info.TTL >= 0 || info.Fence != granted.Fence {
			t.Errorf("%s: Inspect: %+v, %v", name, info, err)
		}
		if broken, err := d.(driver.Breaker).Break(t.Context(), dead.Name, granted.Fence); err != nil || !broken {
			t.Fatalf("%s: Break: %t, %v", name, broken, err)
		}
		next := waiter.lease(time.Second)
		rises(t, granted.Fence, next.Fence())
		mustRelease(t, next)
		s.gone(t, key)
		s.expires(t, key)
	}
}

// expires checks that each key of a lock has a TTL. PostgreSQL sweeps.
func (s *service) expires(tb testing.TB, key string) {
	tb.Helper()
	if s.postgres != nil {
		return
	}
	for _, k := range []string{lockKey(key), queueKey(key), waitersKey(key), tombstonesKey(key)} {
		if mustDo(tb, s.master(key), "PTTL", k) == "-1" {
			tb.Errorf("%s has no TTL", k)
		}
	}
}
