package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/testservers"
)

// What stands in Redis when somebody else has had a hand in it, and for how long.

const (
	lockKey  = "n:{k}:lock"
	fenceKey = "n:{k}:fence"
)

func owner(c string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: driver.Name{Namespace: "n", Key: "k"}, Owner: strings.Repeat(c, 32), TTL: time.Minute}
}

func newDriver(t *testing.T) (driver.Driver, *redis.Client) {
	t.Helper()
	client := newClient(t, testservers.SharedRedis(t))
	return driverOver(t, client), client
}

func mustGrant(t *testing.T, d driver.Driver, req driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := d.Acquire(t.Context(), req)
	if err != nil || reply.Outcome != driver.Granted {
		t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	return reply
}

// The counter stays for a day beyond the moment that its last token stands for, however far ahead that is.
func TestFence_S2_theCounterOutlivesItsLastToken(t *testing.T) {
	d, client := newDriver(t)
	req := owner("a")
	const ahead = 48 * time.Hour
	mustGrant(t, d, req)
	floor := time.Now().Add(ahead).UnixMicro()
	raised, err := d.Raise(t.Context(), driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: floor})
	if err != nil || raised.Fence != floor {
		t.Fatalf("Raise: %+v, %v", raised, err)
	}
	if left := client.PTTL(t.Context(), fenceKey).Val(); left < ahead+driver.FenceKeep-time.Minute || left > ahead+driver.FenceKeep+time.Minute {
		t.Errorf("the counter expires in %s", left)
	}
}

func TestRelease_withoutACounterLeavesNone(t *testing.T) {
	d, client := newDriver(t)
	req := owner("a")
	mustGrant(t, d, req)
	client.Del(t.Context(), fenceKey) // evicted, or removed by hand
	if reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
	mustGrant(t, d, owner("b"))
}

func TestRelease_marksExpire(t *testing.T) {
	d, client := newDriver(t)
	req := owner("a")
	if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), "n:{k}:void:"+req.Owner).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the mark expires in %s", left)
	}
}

// The holder keeps its lock, though it gets no higher token.
func TestRefence_S1_overAForeignCounterKeepsTheLock(t *testing.T) {
	d, client := newDriver(t)
	req := owner("a")
	grant := mustGrant(t, d, req)
	client.Del(t.Context(), fenceKey)
	client.HSet(t.Context(), fenceKey, "not", "ours")
	raise := driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: grant.FenceEnd + 1}
	if reply, err := d.Raise(t.Context(), raise); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("Refence: %+v, %v", reply, err)
	}
	if client.Exists(t.Context(), lockKey).Val() != 1 {
		t.Error("the lock is gone")
	}
	if reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
}

// A server without memory frees a lock all the same, and says if a mark could not be left that is needed.
func TestRelease_S1_outOfMemory(t *testing.T) {
	d, client := newDriver(t)
	held, never := owner("a"), owner("b")
	mustGrant(t, d, held)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	reply := d.Extend(t.Context(), []driver.ExtendRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Hour}})[0]
	if reply.Err != nil || !reply.Held {
		t.Errorf("Extend: %+v", reply)
	}
	void := driver.ReleaseRequest{Name: held.Name, Owner: held.Owner, Tombstone: time.Minute}
	plain := driver.ReleaseRequest{Name: held.Name, Owner: held.Owner}
	for copy, req := range []driver.ReleaseRequest{void, plain} {
		if reply, err := d.Release(t.Context(), req); err != nil || !reply.Released {
			t.Errorf("Release of what was held, copy %d: %+v, %v", copy, reply, err)
		}
	}
	if client.Exists(t.Context(), lockKey).Val() != 0 {
		t.Error("the lock stands")
	}
	void.Owner = never.Owner
	if reply, err := d.Release(t.Context(), void); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("a mark without memory: %+v, %v", reply, err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
}
