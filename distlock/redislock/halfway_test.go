package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// queue is a lock with a holder and a waiter.
type queue struct {
	t      *testing.T
	server *servers.Redis
	client *redis.Client
	holder *distlock.Lease
	next   *waiter
}

func newQueue(t *testing.T) *queue {
	q := &queue{t: t, server: servers.StartRedis(t)}
	q.client = newClient(t, q.server)
	q.holder = mustAcquire(t, q.locker())
	q.next = wait(t, t.Context(), q.locker())
	awaitWaiters(t, q.server, 1)
	return q
}

// locker opens another Locker.
func (q *queue) locker() *distlock.Locker {
	q.t.Helper()
	return newLocker(q.t, q.client, ttl(time.Second))
}

// rights grants or revokes a right.
func (q *queue) rights(rule string) {
	q.t.Helper()
	do(q.t, q.server, "ACL", "SETUSER", "default", rule)
}

// Scripts do not roll back. A right that is missing after the write of the record leaves the
// handoff valid.
func TestRelease_L_handoffFailsHalfWay(t *testing.T) {
	q := newQueue(t)
	q.rights("-zrem")
	mustRelease(t, q.holder)
	q.rights("+zrem")
	mustRelease(t, q.next.got(10*time.Second))
	last, err := q.locker().Acquire(t.Context(), key, distlock.WithWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, last)
}

// An Acquire that finds the lock free hands it off to an earlier waiter, even without the right to
// publish.
func TestAcquire_L_handoffWithoutPublishACL(t *testing.T) {
	q := newQueue(t)
	q.rights("-publish")
	q.client.PExpire(t.Context(), prefix+"lock", driver.FenceKeep) // the record outlives the lock
	if _, err := q.locker().TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Errorf("TryAcquire: %v", err)
	}
	q.rights("+publish")
	mustRelease(t, q.next.got(10*time.Second))
}
