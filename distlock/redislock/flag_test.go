package redislock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The flag of a record with a queue or tombstones, after changes by hand or with a missing right.

// isFlagged reports whether a queue or tombstones may exist.
func isFlagged(record string) bool {
	return strings.HasPrefix(record, "b2H") || strings.HasPrefix(record, "b2R")
}

// waits is a request that waits.
func waits(c string) driver.AcquireRequest {
	req := owner(c)
	req.Seq, req.Alive = 1, time.Minute
	return req
}

func plain(c string) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: owner(c).Name, Owner: owner(c).Owner}
}

func cancel(c string) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: owner(c).Name, Owner: owner(c).Owner, Tombstone: time.Minute}
}

func release(t *testing.T, d driver.Driver, req driver.ReleaseRequest, want bool) {
	t.Helper()
	if reply, err := d.Release(t.Context(), req); err != nil || reply.Released != want {
		t.Fatalf("Release: %+v, %v; want %t", reply, err, want)
	}
}

// The record of a lock with a queue, or with a tombstone, is deleted. A newcomer takes the lock.
// The next request that waits flags the new record, so that no request overtakes the queue again.
func TestAcquire_S1_deletedRecord_isFlaggedAgain(t *testing.T) {
	for _, tombstone := range []bool{false, true} {
		d, client := newDriver(t)
		mustGrant(t, d, owner("a"))
		if tombstone {
			release(t, d, cancel("b"), false)
		} else {
			enqueue(t, d, "b")
		}
		client.Del(t.Context(), lockKey)
		mustGrant(t, d, owner("c"))
		if reply, err := d.Acquire(t.Context(), waits("d")); err != nil || reply.Outcome != driver.Busy {
			t.Errorf("%+v, %v", reply, err)
		}
		if now := client.Get(t.Context(), lockKey).Val(); !isFlagged(now) {
			t.Errorf("with a tombstone %t, the record is %q", tombstone, now)
		}
		client.FlushDB(t.Context())
	}
}

// A waiter whose promise has ended, and the winner, are in the queue no more.
func TestAcquire_queueOfTheDead_isNotCounted(t *testing.T) {
	for name, winner := range map[string]string{"another owner": "d", "a waiter": "c"} {
		t.Run(name, func(t *testing.T) {
			d, client := newDriver(t)
			mustGrant(t, d, owner("a"))
			enqueue(t, d, "b")
			enqueue(t, d, "c")
			client.HDel(t.Context(), waitersKey, owner("b").Owner)
			if winner == "d" {
				client.HDel(t.Context(), waitersKey, owner("c").Owner)
			}
			client.PExpire(t.Context(), lockKey, driver.FenceKeep)
			reply := mustGrant(t, d, waits(winner))
			if record := client.Get(t.Context(), lockKey).Val(); reply.Waiters != 0 || isFlagged(record) || client.Exists(t.Context(), queueKey, waitersKey).Val() != 0 {
				t.Errorf("%d waiters, and the record is %q", reply.Waiters, record)
			}
		})
	}
}

// A member of the queue that is no owner is granted nothing.
func TestAcquire_C_foreignMember_isNoOwner(t *testing.T) {
	d, client := newDriver(t)
	client.ZAdd(t.Context(), queueKey, redis.Z{Score: 1, Member: "theirs"})
	client.HSet(t.Context(), waitersKey, "theirs", fmt.Sprintf("%d:1::{}", time.Now().Add(time.Hour).UnixMilli()))
	mustGrant(t, d, waits("a"))
}

// A new waiter comes after all others, also if the clock of Redis has been set back. A queue lives as long as
// the longest promise in it.
func TestQueue_L_manyPromises_inOrder(t *testing.T) {
	d, client := newDriver(t)
	mustGrant(t, d, owner("a"))
	var order []string
	for i, alive := range []time.Duration{time.Second, time.Hour, time.Second} {
		req := waits(fmt.Sprint(i + 1))
		req.Alive = alive
		if i == 0 {
			req.Ticket = time.Now().Add(time.Hour).UnixMicro() // of a clock that was ahead
		}
		if reply, err := d.Acquire(t.Context(), req); err != nil || reply.Ticket == 0 {
			t.Fatalf("%+v, %v", reply, err)
		}
		order = append(order, req.Owner)
	}
	if queue := client.ZRange(t.Context(), queueKey, 0, -1).Val(); !slices.Equal(queue, order) {
		t.Errorf("the queue is %q", queue)
	}
	for _, key := range []string{queueKey, waitersKey} {
		if left := client.PTTL(t.Context(), key).Val(); left < time.Hour-time.Minute || left > time.Hour+time.Minute {
			t.Errorf("%s expires in %s", key, left)
		}
	}
}

// A queue that all waiters have left has no keys.
func TestQueue_empty_noKeysLeft(t *testing.T) {
	d, client := newDriver(t)
	mustGrant(t, d, owner("a"))
	enqueue(t, d, "b")
	enqueue(t, d, "c")
	must(t, call(t.Context(), d, "leave", "k", "b"))
	must(t, call(t.Context(), d, "leave", "k", "c"))
	if n := client.Exists(t.Context(), queueKey, waitersKey).Val(); n > 0 {
		t.Errorf("%d keys are there", n)
	}
}

// A full queue is full by the word of a master alone.
func TestAcquire_fullQueueOnReplica_isTemporary(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := newClient(t, server)
	d := driverOver(t, client)
	mustGrant(t, d, owner("a"))
	alive := fmt.Sprintf("%d:1::{}", time.Now().Add(time.Hour).UnixMilli())
	pipe := client.Pipeline()
	for i := range driver.MaxQueue {
		member := fmt.Sprintf("%032d", i)
		pipe.ZAdd(t.Context(), queueKey, redis.Z{Score: float64(i), Member: member})
		pipe.HSet(t.Context(), waitersKey, member, alive)
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	req := waits("b")
	if reply, err := d.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Full {
		t.Errorf("%+v, %v", reply, err)
	}
	do(t, server, "REPLICAOF", "127.0.0.1", "1")
	if reply, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrTemporary) {
		t.Errorf("on a replica: %+v, %v", reply, err)
	}
}

// limited is a server with a driver whose user lacks a right, and one whose user lacks none.
func limited(t *testing.T, without string) (less, all driver.Driver, client *redis.Client) {
	server := servers.StartRedis(t)
	do(t, server, "ACL", "SETUSER", "less", "on", ">"+servers.UserPassword, "~*", "&*", "+@all", "-"+without)
	client = newClient(t, server)
	user := newClient(t, server, redis.Options{Username: "less", Password: servers.UserPassword})
	return driverOver(t, user), driverOver(t, client), client
}

// The first of three waiters leaves a lock that has expired. The second is granted it, and the
// third is not overtaken.
func TestRelease_L_leaverOfFreeLock_keepsFlag(t *testing.T) {
	d, client := newDriver(t)
	mustGrant(t, d, owner("a"))
	for _, c := range []string{"b", "c", "d"} {
		enqueue(t, d, c)
	}
	client.PExpire(t.Context(), lockKey, driver.FenceKeep)
	must(t, call(t.Context(), d, "leave", "k", "b"))
	if record := client.Get(t.Context(), lockKey).Val(); !strings.HasPrefix(record, "b2H."+owner("c").Owner) {
		t.Errorf("the record is %q", record)
	}
}

// A queue that cannot be read may have waiters, and tombstones that cannot be read may be those of
// an owner whose packet is late.
func TestRelease_S1_unreadableQueue_staysFlagged(t *testing.T) {
	t.Parallel()
	less, all, client := limited(t, "zcard")
	mustGrant(t, less, owner("a"))
	release(t, all, cancel("b"), false)
	release(t, less, plain("a"), true)
	if record := client.Get(t.Context(), lockKey).Val(); !isFree(record) || !isFlagged(record) {
		t.Errorf("the record is %q", record)
	}
	if reply, err := all.Acquire(t.Context(), owner("b")); err != nil || reply.Outcome != driver.Cancelled {
		t.Errorf("a late copy: %+v, %v", reply, err)
	}
}

// An owner that could not leave the queue is not cancelled: its clean-up goes on.
func TestRelease_S1_unreadableQueue_cancelFails(t *testing.T) {
	d, client := newDriver(t)
	client.RPush(t.Context(), queueKey, "theirs")
	if reply, err := d.Release(t.Context(), cancel("b")); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("%+v, %v", reply, err)
	}
	client.Del(t.Context(), queueKey)
	mustGrant(t, d, waits("a"))
}

// Scripts do not roll back. A grant, an ask, and the handoff of an acquire or a release, stay valid without
// the right to remove the new holder from the queue, or to notify it.
func TestAcquire_L_missingRight_grantStands(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"zrem", "publish"} {
		less, all, client := limited(t, right)
		queued := func() {
			client.FlushDB(t.Context())
			mustGrant(t, all, owner("a"))
			enqueue(t, all, "b")
		}
		queued()
		client.PExpire(t.Context(), lockKey, driver.FenceKeep) // the record outlives the lock
		if reply, err := less.Acquire(t.Context(), waits("c")); err != nil || reply.Outcome != driver.Busy {
			t.Errorf("a handoff: %+v, %v", reply, err)
		}
		mustGrant(t, all, waits("b"))
		queued()
		client.Del(t.Context(), lockKey)
		mustGrant(t, less, waits("b"))
		queued()
		release(t, less, plain("a"), true)
		mustGrant(t, all, waits("b"))
		release(t, all, plain("b"), true)
		mustGrant(t, all, owner("c"))
		must(t, call(t.Context(), less, "ask", "k", "c"))
		if extend := all.Extend(t.Context(), []driver.ExtendRequest{{Name: owner("c").Name, Owner: owner("c").Owner, TTL: time.Minute}}); !extend[0].Asked {
			t.Errorf("an ask: %+v", extend[0])
		}
	}
}

// Where no token is left for the waiter, the holder releases the lock at least.
func TestRelease_L_tokensUsedUp_released(t *testing.T) {
	d, client := newDriver(t)
	client.Set(t.Context(), lockKey, record("H", "a", driver.MaxFence), driver.FenceKeep+time.Minute)
	enqueue(t, d, "b")
	release(t, d, plain("a"), true)
	if record := client.Get(t.Context(), lockKey).Val(); !isFree(record) {
		t.Errorf("the record is %q", record)
	}
}

func TestAcquire_ownerOfAnotherLength_isNotSent(t *testing.T) {
	d, client := newDriver(t)
	req := owner("a")
	req.Owner = req.Owner[1:]
	if reply, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrNotDone) || client.DBSize(t.Context()).Val() != 0 {
		t.Errorf("%+v, %v", reply, err)
	}
}
