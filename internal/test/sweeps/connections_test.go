package sweeps

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
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

// A break lasts for as long as the call. A waiter then asks until its wait is over, and a lease
// without a release expires. So both are short here.
var wires = []wire{
	{kind: kind{name: "once"}, ttl: ttl, wait: wait},
	{kind: kind{name: "once,sentOnce"}, ttl: ttl, wait: wait, sendsOnce: true},
	{kind: kind{name: "onwards", onwards: true}, ttl: time.Second, wait: 60 * time.Millisecond},
	{kind: kind{name: "cancelled", cancels: true}, ttl: ttl, wait: wait},
	{kind: kind{name: "once"}, ttl: ttl, wait: wait, apart: true},
	{kind: kind{name: "cancelled", cancels: true}, ttl: ttl, wait: wait, apart: true},
}

// Each read and write of the connections fails in turn: once, or, as in a broken network, together
// with all later ones. In a third round, the caller leaves at that moment.
func TestSweep_connections(t *testing.T) {
	r := newRealm(t, servers.StartRedis(t), nil)
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

// The same for the connections to all nodes of a quorum. The sessions are on another server. The
// last answers to a grant may come during the call that follows, so a silent call may see failures,
// too.
func TestSweep_connections_redlock3(t *testing.T) {
	r := newRealm(t, servers.StartRedis(t), servers.StartQuorum(t, 3).Nodes())
	for _, row := range lockRows {
		for _, w := range wires {
			if w.apart {
				continue
			}
			t.Run(row.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				if failed := r.sweep(t, row, w); failed == 0 && !row.silent {
					t.Error("no operation failed")
				}
			})
		}
	}
}

// realm is a Redis, or a quorum beside one, and a client and a Locker that do not fail.
type realm struct {
	server *servers.Redis   // of the sessions; without nodes, also of the locks
	nodes  []*servers.Redis // of the quorum
	client *redis.Client
	locker *distlock.Locker
}

func newRealm(t *testing.T, server *servers.Redis, nodes []*servers.Redis) *realm {
	r := &realm{server: server, nodes: nodes}
	r.client = newClient(t, server, nil, false)
	clients := r.lockClients(t, r.client, nil, false)
	r.locker = newLocker(t, clients, ttl)
	t.Cleanup(func() {
		for _, client := range clients {
			nothingLasts(t, client)
		}
	})
	return r
}

// lockClients are those of a Locker, which shares the client of the sessions with them if it can.
func (r *realm) lockClients(t *testing.T, client *redis.Client, dial faultnet.DialFunc, sendsOnce bool) (clients []*redis.Client) {
	if r.nodes == nil {
		return []*redis.Client{client}
	}
	for _, node := range r.nodes {
		clients = append(clients, newClient(t, node, dial, sendsOnce))
	}
	return clients
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
	s := &scene{TB: t, point: p, key: secret + "-" + t.Name(), ctx: t.Context(), wait: w.wait, soon: ttl / 3, settle: func() {}}
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
	client := newClient(t, r.server, dial, w.sendsOnce)
	lockClients := r.lockClients(t, client, dial, w.sendsOnce)
	if w.apart {
		lockClients = []*redis.Client{newClient(t, r.server, dial, w.sendsOnce)}
	}
	s.awaitQueued = func() {
		servers.Await(t, 20*time.Second, "a waiter in the queue, with no request under way", func() bool {
			info, err := s.sound.locker.Inspect(s.ctx, s.key)
			s.must(err)
			busy := slices.ContainsFunc(lockClients, func(client *redis.Client) bool {
				pool := client.PoolStats()
				return pool.IdleConns != pool.TotalConns
			})
			return !busy && (info.Waiters == 1 || r.nodes != nil) // a quorum has no queue
		})
	}
	s.faulty, s.sound = open(newLocker(t, lockClients, w.ttl), client), open(r.locker, r.client)
	return s
}

func newClient(t *testing.T, server *servers.Redis, dial faultnet.DialFunc, sendsOnce bool) *redis.Client {
	options := &redis.Options{
		Addr: server.Addr(), Dialer: dial, ContextTimeoutEnabled: true, DialerRetries: 1,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond,
	}
	if sendsOnce {
		options.MaxRetries = -1
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocker makes a Locker over one Redis, or over the nodes of a quorum, which count at once.
func newLocker(t *testing.T, clients []*redis.Client, ttl time.Duration) *distlock.Locker {
	opts := distlock.Options{TTL: ttl, Wait: wait, Logger: quiet()}
	var locker *distlock.Locker
	var err error
	if len(clients) == 1 {
		locker, err = redislock.New(clients[0], &opts)
	} else {
		var nodes []redis.UniversalClient
		for _, client := range clients {
			nodes = append(nodes, client)
		}
		locker, err = redlock.New(nodes, &redlock.Options{Options: opts, RestartDelay: -1})
	}
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

// nothingLasts checks that Redis keeps nothing of a lock for ever, and that its queue is empty.
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
		case left < 0: // it has gone by now
		case strings.HasSuffix(key, ":lock"):
			held := func() bool {
				record, err := client.Get(ctx, key).Result()
				left := client.PTTL(ctx, key).Val()
				return err == nil && (strings.HasPrefix(strings.ToLower(record), "b2h") || strings.HasPrefix(record, "q1h") && left > keepOf(record))
			}
			// A late node of a quorum is released in the background.
			if !servers.Within(time.Second, func() bool { return !held() }) {
				t.Errorf("%s is held", key)
			}
		case strings.HasSuffix(key, ":queue"):
			if n, err := client.ZCard(ctx, key).Result(); err != nil || n > 0 {
				t.Errorf("%s: %d wait, %v", key, n, err)
			}
		}
	}
}

// keepOf is how long a record of a node outlives its grant. A node may have missed the release of a
// grant that has expired.
func keepOf(record string) time.Duration {
	ms, _ := strconv.ParseInt(record[84:95], 10, 64)
	return time.Duration(ms) * time.Millisecond
}
