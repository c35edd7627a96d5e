package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
)

var (
	tokenInstantly = redis.NewScript(redislock.BesideLua + "return token_instantly(KEYS[1], KEYS[2], KEYS[3], KEYS[4])")
	isGranted      = redis.NewScript(redislock.BesideLua + "return is_granted(KEYS[1], tonumber(ARGV[1])) and 1 or 0")
)

// beside is a Locker, and what a store beside it sees of one lock.
type beside struct {
	testing.TB
	server *testservers.Database
	client *redis.Client
	locker *distlock.Locker
	keys   redislock.Beside
}

func newBeside(tb testing.TB) *beside {
	server := testservers.SharedRedis(tb)
	client := newClient(tb, server)
	l := newLocker(tb, client, distlock.Options{Wait: -1})
	keys, ok := redislock.BesideOf(l, client, "k}%")
	if !ok {
		tb.Fatal("a Locker does not know its client")
	}
	return &beside{tb, server, client, l, keys}
}

// token is what a script is given, 0: none.
func (b *beside) token() int64 {
	b.Helper()
	text, err := tokenInstantly.Run(b.Context(), b.client, []string{b.keys.Lock, b.keys.Fence, b.keys.Line, b.keys.Void("op")}).Text()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	token, wrong := strconv.ParseInt(text, 10, 64)
	if err = errors.Join(err, wrong); err != nil {
		b.Fatal(err)
	}
	return token
}

func (b *beside) granted(token int64) bool {
	b.Helper()
	is, err := isGranted.Run(b.Context(), b.client, []string{b.keys.Lock}, token).Int()
	if err != nil {
		b.Fatal(err)
	}
	return is == 1
}

func (b *beside) lease() *distlock.Lease {
	b.Helper()
	lease, err := b.locker.Acquire(b.Context(), "k}%")
	if err != nil {
		b.Fatal(err)
	}
	return lease
}

func (b *beside) release(lease *distlock.Lease) {
	b.Helper()
	if err := lease.Release(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// Tokens that were given without a grant are above all that were granted before, and below all that come after.
func TestBeside_S2_tokensRise(t *testing.T) {
	b := newBeside(t)
	last := int64(0)
	rises := func(what string, token int64) {
		t.Helper()
		if token <= last {
			t.Errorf("%s: %d after %d", what, token, last)
		}
		last = token
	}
	rises("without a counter", b.token())
	time.Sleep(time.Millisecond)
	for round := range 30 {
		lease := b.lease()
		rises("a lease", lease.Fence())
		if token := b.token(); token != 0 {
			t.Errorf("%d while the lock is held", token)
		}
		b.release(lease)
		if round == 0 { // the only one that is not ahead of the clock
			last += 20_000 // reserved for it, and perhaps used by its process
		}
		for range round % 4 {
			rises("just after the lease", b.token())
		}
		if round%10 == 0 {
			time.Sleep(25 * time.Millisecond)
			before := time.Now().UnixMicro()
			token := b.token()
			rises("later", token)
			if token < before || token > time.Now().UnixMicro() {
				t.Errorf("%d is not the time, which was %d", token, before)
			}
		}
	}
	// A lock service that was ahead of its clock.
	lease := b.lease()
	if err := lease.Refence(t.Context(), lease.Fence()+1_000_000_000); err != nil {
		t.Fatal(err)
	}
	last = lease.Fence()
	b.release(lease)
	for range 3 {
		rises("far ahead", b.token())
	}
	if ttl := b.client.TTL(t.Context(), b.keys.Fence).Val(); ttl < 24*time.Hour || ttl > 25*time.Hour {
		t.Errorf("the counter is kept for %s", ttl)
	}
	lease = b.lease()
	rises("a lease, far ahead", lease.Fence())
	b.release(lease)
}

// Nobody is overtaken, and what is not understood is left to those who take the lock.
func TestBeside_noTokenWhereSomebodyIsInTheWay(t *testing.T) {
	b := newBeside(t)
	ctx := t.Context()
	b.release(b.lease())
	for name, set := range map[string]func() error{
		"a waiter":               func() error { return b.client.ZAdd(ctx, b.keys.Line, redis.Z{Member: "somebody"}).Err() },
		"a lock":                 func() error { return b.client.Set(ctx, b.keys.Lock, "b1:", 0).Err() },
		"a lock of another type": func() error { return b.client.RPush(ctx, b.keys.Lock, "foreign").Err() },
		"a void operation":       func() error { return b.client.Set(ctx, b.keys.Void("op"), "", 0).Err() },
		"a foreign counter":      func() error { return b.client.Set(ctx, b.keys.Fence, "foreign", 0).Err() },
		"a counter of another type": func() error {
			b.client.Del(ctx, b.keys.Fence)
			return b.client.RPush(ctx, b.keys.Fence, "foreign").Err()
		},
	} {
		counter := b.client.Get(ctx, b.keys.Fence).Val()
		if err := set(); err != nil {
			t.Fatal(err)
		}
		if token := b.token(); token != 0 {
			t.Errorf("%s: %d", name, token)
		}
		b.client.Del(ctx, b.keys.Lock, b.keys.Line, b.keys.Void("op"), b.keys.Fence)
		b.client.Set(ctx, b.keys.Fence, counter, time.Hour)
		if token := b.token(); token == 0 {
			t.Errorf("%s: no token when it is gone", name)
		}
	}
}

// The tokens of the lock's owner are those that were reserved for its grant.
func TestBeside_knowsTheOwnersTokens(t *testing.T) {
	b := newBeside(t)
	first := b.lease()
	if !b.granted(first.Fence()) || !b.granted(first.Fence()+19_000) || b.granted(first.Fence()-1) || b.granted(first.Fence()+20_001) {
		t.Errorf("%t %t %t %t", b.granted(first.Fence()), b.granted(first.Fence()+19_000), b.granted(first.Fence()-1), b.granted(first.Fence()+20_001))
	}
	next := make(chan *distlock.Lease)
	go func() { next <- b.lease() }()
	time.Sleep(2 * time.Millisecond) // not for long: then it is handed on in the process
	b.release(first)
	second := <-next
	if !b.granted(second.Fence()) {
		t.Errorf("the token %d of one to whom the lock was handed, after %d", second.Fence(), first.Fence())
	}
	if err := second.Refence(t.Context(), second.Fence()+1_000_000); err != nil {
		t.Fatal(err)
	}
	if !b.granted(second.Fence()) || b.granted(first.Fence()) {
		t.Error("after Refence")
	}
	b.release(second)
	if b.granted(second.Fence()) {
		t.Error("after the release")
	}
}

func TestBesideOf_knowsNobodyElsesClient(t *testing.T) {
	b := newBeside(t)
	if _, ok := redislock.BesideOf(b.locker, newClient(t, b.server), "k"); ok {
		t.Error("another client of the same server")
	}
	byURL, err := lockurl.Open(t.Context(), b.server.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer byURL.Close(context.Background())
	if _, ok := redislock.BesideOf(byURL, b.client, "k"); ok {
		t.Error("a Locker with a client of its own")
	}
	d, err := redislock.NewDriver(b.client)
	if err != nil {
		t.Fatal(err)
	}
	faulty, err := distlock.New(drivertest.NewFaults(d), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer faulty.Close(context.Background())
	if _, ok := redislock.BesideOf(faulty, b.client, "k"); ok {
		t.Error("a driver that is wrapped, and does not say in what")
	}
	if tag := redislock.HashTag("k}%"); tag != "{k%7D%25}:" || fmt.Sprintf("distlock:%slock", tag) != b.keys.Lock {
		t.Errorf("%s, and the lock %s", tag, b.keys.Lock)
	}
}
