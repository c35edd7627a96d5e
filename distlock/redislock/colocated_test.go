package redislock_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/redisconn"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// colocated is a Locker and one of its locks, as the scripts of a store on the same Redis see them.
type colocated struct {
	*testing.T
	server                *servers.Database
	client                *redis.Client
	locker                *distlock.Locker
	isGranted, isReleased *redis.Script
}

const held = prefix + "lock"

func newColocated(t *testing.T) *colocated {
	server := servers.SharedRedis(t)
	client := newClient(t, server)
	l := newLocker(t, client, settings{wait: -1})
	locks := fencing.Driver(l).(redisconn.Locks)
	for name, tag := range map[string]string{key: "{" + key + "}:", "k}%": "{k%7D%25}:"} {
		if redislock.HashTag(name) != tag || locks.LockKey("distlock", name) != "distlock:"+tag+"lock" {
			t.Errorf("%s, and the lock %s", redislock.HashTag(name), locks.LockKey("distlock", name))
		}
	}
	lua := locks.StoreLua()
	return &colocated{
		t, server, client, l,
		redis.NewScript(lua + "return is_granted(KEYS[1], tonumber(ARGV[1])) and 1 or 0"),
		redis.NewScript(lua + "return release_lock(KEYS[1], ARGV[1]) == 'released' and 1 or 0"),
	}
}

func (b *colocated) run(script *redis.Script, arg any) bool {
	b.Helper()
	answer, err := script.Run(b.Context(), b.client, []string{held}, arg).Int()
	must(b, err)
	return answer == 1
}

func (b *colocated) granted(token int64) bool { return b.run(b.isGranted, token) }

// released releases the lock for an owner; "" means the owner in the record.
func (b *colocated) released(owner string) bool {
	if owner == "" {
		owner = b.client.Get(b.Context(), held).Val()[4:36]
	}
	return b.run(b.isReleased, owner)
}

// The owner has the tokens that were reserved for its grant, and no others.
func TestColocated_S2_ownersTokens(t *testing.T) {
	b := newColocated(t)
	first := mustAcquire(t, b.locker)
	for ahead, want := range map[int64]bool{0: true, 19_000: true, -1: false, 20_001: false} {
		if b.granted(first.Fence()+ahead) != want {
			t.Errorf("the token %+d: granted %t", ahead, !want)
		}
	}
	next := wait(t, t.Context(), b.locker)
	time.Sleep(2 * time.Millisecond) // a short time: the handoff is within the process
	mustRelease(t, first)
	second, err := next()
	must(t, err)
	if !b.granted(second.Fence()) {
		t.Errorf("after a handoff the token %d is not granted; the one before was %d", second.Fence(), first.Fence())
	}
	must(t, fencing.RaiseToken(t.Context(), second, second.Fence()+1_000_000))
	if !b.granted(second.Fence()) || b.granted(first.Fence()) {
		t.Error("after RaiseToken")
	}
	mustRelease(t, second)
	if b.granted(second.Fence()) {
		t.Error("after the release")
	}
	third := mustAcquire(t, b.locker)
	if !b.granted(third.Fence()) {
		t.Error("the token of the next lease is not granted")
	}
	asked, err := fencing.Ask(t.Context(), b.locker, key, driver.AskRequest{Fence: third.Fence(), Floor: third.Fence() + 40_000})
	if err != nil || !asked.Asked || !b.granted(third.Fence()+19_000) || b.granted(third.Fence()+20_001) || b.granted(asked.Fence) {
		t.Errorf("after an ask, which has the token of no lease: %+v, %v", asked, err)
	}
	b.client.PExpire(t.Context(), held, driver.FenceKeep)
	if b.granted(third.Fence()) {
		t.Error("after the lock has expired")
	}
}

func TestColocated_S2_damagedRecord_grantsNoToken(t *testing.T) {
	b := newColocated(t)
	const token = 1795225289917391
	for _, state := range []string{"h", "H"} {
		b.client.Set(t.Context(), held, record(state, "a", token), driver.FenceKeep+time.Hour)
		if !b.granted(token) {
			t.Fatalf("a sound record in the state %s grants its token", state)
		}
	}
	if b.client.Persist(t.Context(), held); !b.granted(token) {
		t.Error("a record that was restored without a TTL is held")
	}
	records := broken("h")
	maps.Copy(records, damaged("h"))
	for name, record := range records {
		b.client.Set(t.Context(), held, record, driver.FenceKeep+time.Hour)
		if b.granted(token) {
			t.Errorf("%s: %q", name, record)
		}
	}
}

// A lock with a waiter, or with a tombstone, needs the full release.
func TestColocated_S1_releasesItsOwnersLock(t *testing.T) {
	b := newColocated(t)
	lease := mustAcquire(t, b.locker)
	if b.released(owner("0").Owner) || !b.granted(lease.Fence()) {
		t.Error("released for another owner")
	}
	if !b.released("") || b.granted(lease.Fence()) {
		t.Error("not released for the owner")
	}
	lease = mustAcquire(t, b.locker)
	ctx, leave := context.WithCancel(t.Context())
	got := wait(t, ctx, newLocker(t, newClient(t, b.server)))
	awaitWaiters(t, b.server, 1)
	if b.released("") || !b.granted(lease.Fence()) {
		t.Error("released with a waiter")
	}
	leave()
	_, _ = got()
	mustRelease(t, lease)
	mustAcquire(t, b.locker)
	b.client.PExpire(t.Context(), held, driver.FenceKeep)
	if b.released("") {
		t.Error("released for the owner of an expired lock")
	}
}
