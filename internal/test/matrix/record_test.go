package matrix

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// An operator has a hand in the record of a lock.

// recordDeleted: the record of a lock is deleted again and again under load. Tokens follow the
// clock of the server, a holder learns of its loss, and no waiter is left behind.
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
