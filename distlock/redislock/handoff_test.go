package redislock_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// enqueue puts an owner into the queue, and returns its wakes.
func enqueue(t *testing.T, d driver.Driver, c string) <-chan driver.Wake {
	t.Helper()
	req := owner(c)
	wakes, stop, err := d.(driver.Listener).Listen(t.Context(), req.Name, req.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	req.Alive, req.Seq = 30*time.Second, 1
	if reply, err := d.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Busy || reply.Ticket == 0 {
		t.Fatalf("the owner is not in the queue: %+v, %v", reply, err)
	}
	return wakes
}

// Data of another program under the keys of a lock with waiters stays as it is. The lock is still
// released.
func TestHandoff_C_foreignData_isKept(t *testing.T) {
	t.Parallel()
	d, client := newDriver(t)
	list := func(t *testing.T, key string) {
		client.Del(t.Context(), key)
		client.RPush(t.Context(), key, "theirs")
	}
	for name, key := range map[string]string{"the lock": lockKey, "the queue": queueKey, "the waiters": waitersKey, "the tombstones": tombstoneKey} {
		t.Run("acquire/"+name, func(t *testing.T) {
			client.FlushDB(t.Context())
			mustGrant(t, d, owner("a"))
			wakes := enqueue(t, d, "b")
			client.PExpire(t.Context(), lockKey, driver.FenceKeep) // it is free
			list(t, key)
			before := client.Get(t.Context(), lockKey).Val()
			if reply, err := d.Acquire(t.Context(), owner("c")); !errors.Is(err, driver.ErrForeign) {
				t.Errorf("Acquire: %+v, %v", reply, err)
			}
			if got := client.LRange(t.Context(), key, 0, -1).Val(); len(got) != 1 || got[0] != "theirs" {
				t.Errorf("%s is now a %s", key, client.Type(t.Context(), key).Val())
			}
			if now := client.Get(t.Context(), lockKey).Val(); now != before {
				t.Errorf("the record was %q, and is %q", before, now)
			}
			if len(wakes) > 0 {
				t.Errorf("a waiter was notified: %+v", <-wakes)
			}
			client.Del(t.Context(), key)
			servers.Await(t, 10*time.Second, "the lock is granted when the data is gone", func() bool {
				b, errB := d.Acquire(t.Context(), owner("b"))
				c, errC := d.Acquire(t.Context(), owner("c"))
				return errB == nil && errC == nil && (b.Outcome == driver.Granted) != (c.Outcome == driver.Granted)
			})
		})
	}
	for name, spoil := range map[string]func(t *testing.T){
		"the queue":      func(t *testing.T) { list(t, queueKey) },
		"the waiters":    func(t *testing.T) { list(t, waitersKey) },
		"the tombstones": func(t *testing.T) { list(t, tombstoneKey) },
		"all of them":    func(t *testing.T) { list(t, queueKey); list(t, waitersKey); list(t, tombstoneKey) },
		"a foreign sorted set as the queue": func(t *testing.T) {
			client.Del(t.Context(), queueKey)
			client.ZAdd(t.Context(), queueKey, redis.Z{Score: 1, Member: "theirs"})
		},
	} {
		for how, leave := range map[string]bool{"with Leave": true, "without Leave": false} {
			t.Run("release/"+name+"/"+how, func(t *testing.T) {
				client.FlushDB(t.Context())
				mustGrant(t, d, owner("a"))
				enqueue(t, d, "b")
				spoil(t)
				types := make(map[string]string)
				for _, key := range []string{queueKey, waitersKey, tombstoneKey} {
					types[key] = client.Type(t.Context(), key).Val()
				}
				reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: owner("a").Name, Owner: owner("a").Owner, Leave: leave})
				if err != nil || !reply.Released || !isFree(client.Get(t.Context(), lockKey).Val()) {
					t.Errorf("Release: %+v, %v; the lock: %s", reply, err, client.Get(t.Context(), lockKey).Val())
				}
				for key, before := range types {
					if now := client.Type(t.Context(), key).Val(); before == "list" && now != before {
						t.Errorf("%s is now a %s", key, now)
					}
				}
			})
		}
	}
}

// A new waiter comes after all others, also if the clock of Redis has been set back.
func TestQueue_L_clockStepsBack_ticketsRise(t *testing.T) {
	d, client := newDriver(t)
	holder, before := owner("a"), owner("b")
	mustGrant(t, d, holder)
	before.Alive = time.Minute
	before.Ticket = time.Now().Add(time.Hour).UnixMicro() // of a clock that was ahead
	late := owner("c")
	late.Alive = time.Minute
	for _, req := range []driver.AcquireRequest{before, late} {
		if reply, err := d.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Busy {
			t.Fatalf("%+v, %v", reply, err)
		}
	}
	if queue := client.ZRange(t.Context(), queueKey, 0, -1).Val(); !slices.Equal(queue, []string{before.Owner, late.Owner}) {
		t.Errorf("the queue is %q", queue)
	}
}
