package redislock_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

var isGranted = redis.NewScript(redislock.ColocatedLua + "return is_granted(KEYS[1], tonumber(ARGV[1])) and 1 or 0")

// colocated is a Locker and one of its locks, as a store on the same Redis sees them.
type colocated struct {
	testing.TB
	server *testservers.Database
	client *redis.Client
	locker *distlock.Locker
	keys   redislock.Colocated
}

func newColocated(tb testing.TB) *colocated {
	server := testservers.SharedRedis(tb)
	client := newClient(tb, server)
	l := newLocker(tb, client, distlock.Options{Wait: -1})
	keys, ok := redislock.ColocatedOf(l, client, "k}%")
	if !ok {
		tb.Fatal("ColocatedOf refuses the client of the Locker")
	}
	return &colocated{tb, server, client, l, keys}
}

func (b *colocated) granted(token int64) bool {
	b.Helper()
	is, err := isGranted.Run(b.Context(), b.client, []string{b.keys.Lock}, token).Int()
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
	b.client.PExpire(t.Context(), b.keys.Lock, driver.FenceKeep)
	if b.granted(third.Fence()) {
		t.Error("after the lock has expired")
	}
}

func TestColocated_S2_damagedRecord_grantsNoToken(t *testing.T) {
	b := newColocated(t)
	const token = 1795225289917391
	for _, state := range []string{"h", "H"} {
		b.client.Set(t.Context(), b.keys.Lock, record(state, "a", token), driver.FenceKeep+time.Hour)
		if !b.granted(token) {
			t.Fatalf("a sound record in the state %s grants its token", state)
		}
	}
	if b.client.Persist(t.Context(), b.keys.Lock); !b.granted(token) {
		t.Error("a record that was restored without a TTL is held")
	}
	records := broken("h")
	maps.Copy(records, damaged("h"))
	for name, record := range records {
		b.client.Set(t.Context(), b.keys.Lock, record, driver.FenceKeep+time.Hour)
		if b.granted(token) {
			t.Errorf("%s: %q", name, record)
		}
	}
}

func TestColocatedOf_otherClient_false(t *testing.T) {
	b := newColocated(t)
	if _, ok := redislock.ColocatedOf(b.locker, newClient(t, b.server), "k"); ok {
		t.Error("another client of the same server")
	}
	byURL, err := lockurl.Open(t.Context(), b.server.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer byURL.Close(context.Background())
	if _, ok := redislock.ColocatedOf(byURL, b.client, "k"); ok {
		t.Error("a Locker with a client of its own")
	}
	d, err := redislock.NewDriver(b.client)
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := distlock.New(struct{ driver.Driver }{d}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hidden.Close(context.Background())
	if _, ok := redislock.ColocatedOf(hidden, b.client, "k"); ok {
		t.Error("a wrapped driver without Unwrap")
	}
	if tag := redislock.HashTag("k}%"); tag != "{k%7D%25}:" || fmt.Sprintf("distlock:%slock", tag) != b.keys.Lock {
		t.Errorf("%s, and the lock %s", tag, b.keys.Lock)
	}
}
