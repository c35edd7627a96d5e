package redislock_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
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

// storeLua is what the scripts of a store begin with.
func storeLua() string {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	d, _ := redislock.NewDriver(client)
	return d.(redisconn.Locks).StoreLua()
}

var isGranted = redis.NewScript(storeLua() + "return is_granted(KEYS[1], tonumber(ARGV[1])) and 1 or 0")

// colocated is a Locker and one of its locks, as a store on the same Redis sees them.
type colocated struct {
	testing.TB
	server *servers.Database
	client *redis.Client
	locker *distlock.Locker
	lock   string // its key
}

func newColocated(tb testing.TB) *colocated {
	server := servers.SharedRedis(tb)
	client := newClient(tb, server)
	l := newLocker(tb, client, forever)
	return &colocated{tb, server, client, l, fencing.Driver(l).(redisconn.Locks).LockKey("distlock", "k}%")}
}

func (b *colocated) granted(token int64) bool {
	b.Helper()
	is, err := isGranted.Run(b.Context(), b.client, []string{b.lock}, token).Int()
	if err != nil {
		b.Fatal(err)
	}
	return is == 1
}

func (b *colocated) lease() *distlock.Lease {
	b.Helper()
	lease, err := b.locker.Acquire(b.Context(), "k}%")
	if err != nil {
		b.Fatal(err)
	}
	return lease
}

func (b *colocated) release(lease *distlock.Lease) {
	b.Helper()
	if err := lease.Release(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// The owner has the tokens that were reserved for its grant, and no others.
func TestColocated_S2_ownersTokens(t *testing.T) {
	b := newColocated(t)
	first := b.lease()
	if !b.granted(first.Fence()) || !b.granted(first.Fence()+19_000) || b.granted(first.Fence()-1) || b.granted(first.Fence()+20_001) {
		t.Errorf("%t %t %t %t", b.granted(first.Fence()), b.granted(first.Fence()+19_000), b.granted(first.Fence()-1), b.granted(first.Fence()+20_001))
	}
	next := make(chan *distlock.Lease)
	go func() { next <- b.lease() }()
	time.Sleep(2 * time.Millisecond) // a short time: the handoff is within the process
	b.release(first)
	second := <-next
	if !b.granted(second.Fence()) {
		t.Errorf("after a handoff the token %d is not granted; the one before was %d", second.Fence(), first.Fence())
	}
	if err := fencing.RaiseToken(t.Context(), second, second.Fence()+1_000_000); err != nil {
		t.Fatal(err)
	}
	if !b.granted(second.Fence()) || b.granted(first.Fence()) {
		t.Error("after RaiseToken")
	}
	b.release(second)
	if b.granted(second.Fence()) {
		t.Error("after the release")
	}
	third := b.lease()
	if !b.granted(third.Fence()) {
		t.Error("the token of the next lease is not granted")
	}
	b.client.PExpire(t.Context(), b.lock, driver.FenceKeep)
	if b.granted(third.Fence()) {
		t.Error("after the lock has expired")
	}
}

func TestColocated_S2_damagedRecord_grantsNoToken(t *testing.T) {
	b := newColocated(t)
	const token = 1795225289917391
	for _, state := range []string{"h", "H"} {
		b.client.Set(t.Context(), b.lock, record(state, "a", token), driver.FenceKeep+time.Hour)
		if !b.granted(token) {
			t.Fatalf("a sound record in the state %s grants its token", state)
		}
	}
	if b.client.Persist(t.Context(), b.lock); !b.granted(token) {
		t.Error("a record that was restored without a TTL is held")
	}
	records := broken("h")
	maps.Copy(records, damaged("h"))
	for name, record := range records {
		b.client.Set(t.Context(), b.lock, record, driver.FenceKeep+time.Hour)
		if b.granted(token) {
			t.Errorf("%s: %q", name, record)
		}
	}
}

func TestHashTag_ofEachKeyOfALock(t *testing.T) {
	b := newColocated(t)
	if tag := redislock.HashTag("k}%"); tag != "{k%7D%25}:" || fmt.Sprintf("distlock:%slock", tag) != b.lock {
		t.Errorf("%s, and the lock %s", tag, b.lock)
	}
}

var releaseLock = redis.NewScript(storeLua() + "return release_lock(KEYS[1], ARGV[1]) or 'nothing'")

// releases runs release_lock for an owner; "" means the owner in the record.
func (b *colocated) releases(owner string) string {
	b.Helper()
	if owner == "" {
		owner = b.client.Get(b.Context(), b.lock).Val()[4:36]
	}
	answer, err := releaseLock.Run(b.Context(), b.client, []string{b.lock}, owner).Text()
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func TestColocated_S1_releasesItsOwnersLock(t *testing.T) {
	b := newColocated(t)
	lease := b.lease()
	if got := b.releases(strings.Repeat("0", 32)); got == "released" || !b.granted(lease.Fence()) {
		t.Errorf("for another owner: %q", got)
	}
	if got := b.releases(""); got != "released" || b.granted(lease.Fence()) {
		t.Errorf("for the owner: %q", got)
	}
	next := b.lease()
	b.client.PExpire(t.Context(), b.lock, driver.FenceKeep)
	if got := b.releases(""); got == "released" {
		t.Errorf("for the owner of an expired lock, with token %d: %q", next.Fence(), got)
	}
}

// A lock with a waiter, or with a tombstone, needs the full release.
func TestColocated_L_flagged_notReleased(t *testing.T) {
	b := newColocated(t)
	lease := b.lease()
	waiting, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := newLocker(t, newClient(t, b.server), forever).Acquire(waiting, "k}%")
		left <- err
	}()
	queue := strings.TrimSuffix(b.lock, "lock") + "queue"
	servers.Await(t, 10*time.Second, "a waiter", func() bool { return b.client.ZCard(t.Context(), queue).Val() == 1 })
	if got := b.releases(""); got == "released" || !b.granted(lease.Fence()) {
		t.Errorf("with a waiter: %q", got)
	}
	leave()
	<-left
	b.release(lease)
}
