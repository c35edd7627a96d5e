package sweeps

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

// wire is a way in which connections fail, and how the clients stand it.
type wire struct {
	kind
	sendsOnce bool          // the clients do not send anything again
	apart     bool          // the store and the lock have a client each
	ttl, wait time.Duration // of the Locker, and of the call
}

// A break lasts for as long as the call: who waits then goes on asking until its wait is over, and what cannot be released
// expires. So these are short there.
var wires = []wire{
	{kind: kind{name: "once"}, ttl: ttl, wait: wait},
	{kind: kind{name: "once,sentOnce"}, ttl: ttl, wait: wait, sendsOnce: true},
	{kind: kind{name: "onwards", onwards: true}, ttl: time.Second, wait: 60 * time.Millisecond},
	{kind: kind{name: "cancelled", cancels: true}, ttl: ttl, wait: wait},
	{kind: kind{name: "once"}, ttl: ttl, wait: wait, apart: true},
	{kind: kind{name: "cancelled", cancels: true}, ttl: ttl, wait: wait, apart: true},
}

// Every read and write of the connections fails in turn: once; or, as in a network that has broken, that one and all that follow; or
// the caller leaves meanwhile.
func TestSweep_connections(t *testing.T) {
	r := &realm{server: testservers.StartRedis(t)}
	r.client = r.newClient(t, nil, false)
	r.locker = newLocker(t, r.client, ttl)
	t.Cleanup(func() { nothingLasts(t, r.client) })

	for i, row := range slices.Concat(lockRows, storeRows) {
		for _, w := range wires {
			if w.apart && i < len(lockRows) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s,apart=%t", row.name, w.name, w.apart), func(t *testing.T) {
				t.Parallel()
				if failed := r.sweep(t, row, w); (failed == 0) != row.silent {
					t.Errorf("%d operations failed", failed)
				}
			})
		}
	}
}

// realm is a Redis, and a client and a Locker that do not fail.
type realm struct {
	server *testservers.Redis
	client *redis.Client
	locker *distlock.Locker
}

// sweep returns how many reads and writes have failed.
func (r *realm) sweep(t *testing.T, row row, w wire) int {
	for n := range most {
		p := &point{kind: w.kind, n: n}
		if !t.Run(fmt.Sprint(n), func(t *testing.T) { row.run(r.newScene(t, p, w)) }) {
			t.FailNow()
		}
		if !p.wasReached() {
			return n
		}
	}
	t.Fatal("there is no end of operations")
	return most
}

func (r *realm) newScene(t *testing.T, p *point, w wire) *scene {
	s := &scene{TB: t, point: p, key: secret + "-" + t.Name(), ctx: t.Context(), wait: w.wait, soon: 3 * time.Second, settle: func() {}}
	dial := faultnet.Dialer(nil, func(int) error {
		switch {
		case !p.hit():
		case !p.kind.cancels:
			return io.EOF // after which go-redis sends again what it may
		default:
			time.Sleep(2 * time.Millisecond) // until the caller has gone
		}
		return nil
	})
	open := func(locker *distlock.Locker, client *redis.Client) (in instance) {
		key := lockedmemory.FixedKey(s.key)
		var err error
		in.locker = locker
		in.store, err = redisstore.New(client, key, sessionstore.JSON[string]{}, nil, nil)
		s.must(err)
		in.memory, err = lockedmemory.New(in.store, in.locker, key, nil)
		s.must(err)
		return in
	}
	client := r.newClient(t, dial, w.sendsOnce)
	lockClient := client
	if w.apart {
		lockClient = r.newClient(t, dial, w.sendsOnce)
	}
	s.inLine = func() {
		testservers.Await(t, 20*time.Second, "a waiter in the queue, with no request under way", func() bool {
			info, err := s.sound.locker.Inspect(s.ctx, s.key)
			s.must(err)
			pool := lockClient.PoolStats()
			return info.Waiters == 1 && pool.IdleConns == pool.TotalConns
		})
	}
	s.faulty, s.sound = open(newLocker(t, lockClient, w.ttl), client), open(r.locker, r.client)
	return s
}

func (r *realm) newClient(t *testing.T, dial faultnet.DialFunc, sendsOnce bool) *redis.Client {
	options := &redis.Options{
		Addr: r.server.Addr(), Dialer: dial, ContextTimeoutEnabled: true, DialerRetries: 1,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond,
	}
	if sendsOnce {
		options.MaxRetries = -1
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newLocker(t *testing.T, client *redis.Client, ttl time.Duration) *distlock.Locker {
	locker, err := redislock.New(client, &distlock.Options{TTL: ttl, Wait: wait, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return locker
}

// nothingLasts checks that Redis keeps nothing of a lock for ever, and nobody in a line.
func nothingLasts(t *testing.T, client *redis.Client) {
	ctx := context.Background()
	keys, err := client.Keys(ctx, "distlock:*").Result()
	if err != nil || len(keys) == 0 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		left, err := client.PTTL(ctx, key).Result()
		switch {
		case err != nil || left == -1:
			t.Errorf("%s stays for ever, %v", key, err)
		case left < 0: // it has gone meanwhile
		case strings.HasSuffix(key, ":lock"):
			if record, err := client.Get(ctx, key).Result(); err == nil && strings.HasPrefix(strings.ToLower(record), "b2h") {
				t.Errorf("%s is held", key)
			}
		case strings.HasSuffix(key, ":queue"):
			if n, err := client.ZCard(ctx, key).Result(); err != nil || n > 0 {
				t.Errorf("%s: %d wait, %v", key, n, err)
			}
		}
	}
}
