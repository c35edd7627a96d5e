package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const prefix = "distlock:{" + key + "}:"

// server is a Redis, or one database.
type server interface {
	Do(args ...string) (string, error)
}

func do(t *testing.T, server server, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

func awaitWaiters(t *testing.T, server server, n int) {
	t.Helper()
	servers.Await(t, 5*time.Second, fmt.Sprint(n, " waiters"), func() bool { return do(t, server, "ZCARD", prefix+"queue") == fmt.Sprint(n) })
}

func listeners(t *testing.T, server server) int {
	t.Helper()
	return strings.Count(do(t, server, "CLIENT", "LIST", "TYPE", "pubsub"), " addr=")
}

func mustAcquire(t *testing.T, l *distlock.Locker) *distlock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key)
	must(t, err)
	return lease
}

func mustRelease(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// wait acquires in the background, and got returns the result.
func wait(t *testing.T, ctx context.Context, l *distlock.Locker) (got func() (*distlock.Lease, error)) {
	type result struct {
		lease *distlock.Lease
		err   error
	}
	done := make(chan result, 1)
	go func() {
		lease, err := l.Acquire(ctx, key, distlock.WithWait(-1))
		done <- result{lease, err}
	}()
	return func() (*distlock.Lease, error) {
		t.Helper()
		select {
		case r := <-done:
			return r.lease, r.err
		case <-time.After(20 * time.Second):
			t.Fatal("no lock, and no error")
			return nil, nil
		}
	}
}

// A Locker listens on one connection for all waiters and locks: from its first waiter until its
// Close.
func TestQueue_oneSubscriptionPerLocker(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	holders := newLocker(t, newClient(t, server))
	waiters := newLocker(t, newClient(t, server), settings{wait: -1})
	mustRelease(t, mustAcquire(t, waiters))
	var held []*distlock.Lease
	for _, name := range []string{"one", "other"} {
		lease, err := holders.Acquire(t.Context(), name)
		must(t, err)
		held = append(held, lease)
	}
	if _, err := waiters.TryAcquire(t.Context(), "one"); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Error(err)
	}
	if n := listeners(t, server); n != 0 {
		t.Errorf("%d subscriptions without a waiter", n)
	}
	var waits sync.WaitGroup
	for _, lease := range held {
		waits.Go(func() {
			if err := waiters.Do(t.Context(), lease.Key(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		servers.Await(t, 5*time.Second, "a waiter", func() bool { return do(t, server, "ZCARD", "distlock:{"+lease.Key()+"}:queue") == "1" })
	}
	if n := listeners(t, server); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	for _, lease := range held {
		mustRelease(t, lease)
	}
	waits.Wait()
	must(t, waiters.Close(t.Context()))
	servers.Await(t, 5*time.Second, "without subscriptions", func() bool { return listeners(t, server) == 0 })
}

// A waiter that leaves before its subscription is confirmed causes no warning.
func TestQueue_earlyLeave_noWarning(t *testing.T) {
	server := servers.SharedRedis(t)
	proxy := faultnet.New(t, server.Addr())
	held := proxy.HoldRequests(faultnet.Containing("subscribe"))
	mustAcquire(t, newLocker(t, newClient(t, server)))
	var log strings.Builder
	l := newLocker(t, newClient(t, proxy, redis.Options{DB: server.DB()}), settings{log: &log})
	ctx, cancel := context.WithCancel(t.Context())
	got := wait(t, ctx, l)
	held.Wait(1)
	cancel()
	if _, err := got(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	held.Release()
	must(t, l.Close(t.Context()))
	if log.String() != "" {
		t.Errorf("the log is %q, want no text", log.String())
	}
}

// A lease from a forged message about a handoff lasts at most as long as the waiter's own promise.
// Its first renewal loses it. A user who can forge a message can also write the keys of the lock.
func TestQueue_N_forgedHandoff_atMostTTL(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	server := servers.StartRedis(t)
	holder := mustAcquire(t, newLocker(t, newClient(t, server)))
	got := wait(t, t.Context(), newLocker(t, newClient(t, server), settings{ttl: limit}))
	awaitWaiters(t, server, 1)
	channel, owner := "", do(t, server, "ZRANGE", prefix+"queue", "0", "0")
	servers.Await(t, 20*time.Second, "a channel", func() bool {
		channel = do(t, server, "PUBSUB", "CHANNELS", "distlock:wake:*")
		return channel != ""
	})
	watch := leakcheck.NewWatch()
	defer watch.Stop()
	sent := time.Now()
	do(t, server, "PUBLISH", channel, owner+" 1 "+fmt.Sprint((200*24*time.Hour).Milliseconds())+" 0 1795225289897391 1795225289917391")
	forged, err := got()
	must(t, err)
	select {
	case <-forged.Context().Done():
	case <-time.After(20 * time.Second):
	}
	lost := time.Now()
	if held := lost.Sub(sent) - watch.Stalled(sent, lost); held > limit {
		t.Errorf("a lease from a forged message was held for %s, its TTL is %s", held, limit)
	}
	if err := forged.Err(); !errors.Is(err, distlock.ErrLost) {
		t.Error(err)
	}
	must(t, holder.Err())
}

// After ten seconds of silence the subscription pings the server. A refusal is an answer, too. Waiters stop
// listening when the server revokes their right to.
func TestListen_L_withoutARight(t *testing.T) {
	t.Parallel()
	d, _, admin := limited(t, "ping")
	mustGrant(t, d, owner("a"))
	wakes := enqueue(t, d, "b")
	next := func() (wake driver.Wake, open bool) {
		t.Helper()
		select {
		case wake, open = <-wakes:
		case <-time.After(10 * time.Second):
			t.Fatal("a waiter is not notified, and still listens")
		}
		return wake, open
	}
	select {
	case wake, ok := <-wakes:
		t.Fatalf("notified of %+v, %t", wake, ok)
	case <-time.After(11 * time.Second):
	}
	release(t, d, plain("a"), true)
	if wake, _ := next(); wake.Grant.Outcome != driver.Granted {
		t.Errorf("notified of %+v", wake)
	}

	all := []<-chan driver.Wake{enqueue(t, d, "c"), enqueue(t, d, "d")}
	must(t, admin.ACLSetUser(t.Context(), "less", "-subscribe").Err())
	must(t, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	for _, wakes = range all {
		for open := true; open; { // a waiter may first get a wake without a grant
			_, open = next()
		}
	}
	if _, _, err := d.(driver.Listener).Listen(t.Context(), owner("e").Name, owner("e").Owner); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("the next to listen: %v", err)
	}
}

// cutOff is a connection to a proxy that closes the connection when it gets a subscription.
type cutOff struct {
	net.Conn
	mended *atomic.Bool
}

func (c cutOff) Write(p []byte) (int, error) {
	if !c.mended.Load() && bytes.Contains(bytes.ToLower(p), []byte("subscribe")) {
		_ = c.Close()
		return 0, errors.New("closed by the proxy")
	}
	return c.Conn.Write(p)
}

func TestListen_L_noSubscription_firstWaits(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	client := newClient(t, servers.SharedRedis(t), redis.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return cutOff{conn, &mended}, err
	}})
	queue := driverOver(t, client).(driver.Listener)
	for i := range 5 {
		name, stop, start := driver.Name{Namespace: "n", Key: fmt.Sprint(i)}, leakcheck.Stalls(), time.Now()
		_, _, err := queue.Listen(t.Context(), name, owner("a").Owner)
		took := time.Since(start)
		ran := took - stop()
		if err == nil {
			t.Fatal("the subscription was confirmed")
		}
		if first := i == 0; first && (took < time.Second || ran > 2*time.Second) || !first && ran > 500*time.Millisecond {
			t.Errorf("the Listen of waiter %d failed after %s: %v", i, took, err)
		}
	}
	start := time.Now()
	mended.Store(true)
	servers.Await(t, 10*time.Second, "a confirmed subscription", func() bool {
		_, stop, err := queue.Listen(t.Context(), owner("b").Name, owner("b").Owner)
		if err == nil {
			stop()
		}
		return err == nil
	})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("no waiter could listen for %s", took)
	}
}

// While a slot moves, the master rejects a script with missing keys, such as those of an empty
// queue.
func TestRelease_C_slotMoves_onCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.SharedTopology("cluster").Cluster
	d := pooled(on("cluster")).New(t)
	for c, moved := range map[string][]string{"b": nil, "c": {lockKey}} { // nothing is moved yet, or all
		mustGrant(t, d, owner(c))
		finish := cluster.BeginMove("{k}", moved...)
		if !slices.Contains(listed(t, d), owner(c).Name) {
			t.Errorf("with %q moved, the lock is on no page", moved)
		}
		release(t, d, plain(c), true)
		finish()
	}
}

type asking string

func (a asking) Error() string { return string(a) }
func (asking) RedisError()     {}

// asks answers scripts with more than two keys like a node whose slot moves.
var asks hook = func(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" && args[2].(int) > 2 {
			cmd.SetErr(asking("ASK 3999 127.0.0.1:6381"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// The last redirection that go-redis follows may lead to another redirection. Without its key there is no
// tombstone, and the queue stays as it is. So both fail while their slot moves, and the Locker repeats them.
func TestRelease_C_afterLastRedirection(t *testing.T) {
	client := newClient(t, servers.SharedRedis(t))
	d := driverOver(t, struct{ redis.UniversalClient }{client})
	mustGrant(t, d, owner("a"))
	client.AddHook(asks)
	for _, what := range []string{"cancel", "leave"} {
		if err := call(t.Context(), d, what, "k", "b"); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	release(t, d, plain("a"), true)
}

// enqueue puts an owner into the queue, and returns its wakes.
func enqueue(t *testing.T, d driver.Driver, c string) <-chan driver.Wake {
	t.Helper()
	req := owner(c)
	wakes, stop, err := d.(driver.Listener).Listen(t.Context(), req.Name, req.Owner)
	must(t, err)
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
	queued := func(t *testing.T) (wakes <-chan driver.Wake) {
		client.FlushDB(t.Context())
		mustGrant(t, d, owner("a"))
		return enqueue(t, d, "b")
	}
	spoil := func(t *testing.T, keys ...string) (isKept func()) {
		for _, key := range keys {
			client.Del(t.Context(), key)
			client.RPush(t.Context(), key, "theirs")
		}
		return func() {
			t.Helper()
			for _, key := range keys {
				if got := client.LRange(t.Context(), key, 0, -1).Val(); len(got) != 1 || got[0] != "theirs" {
					t.Errorf("%s is now a %s", key, client.Type(t.Context(), key).Val())
				}
			}
		}
	}
	for name, key := range map[string]string{"the lock": lockKey, "the queue": queueKey, "the waiters": waitersKey, "the tombstones": tombstoneKey} {
		t.Run("acquire/"+name, func(t *testing.T) {
			wakes := queued(t)
			client.PExpire(t.Context(), lockKey, driver.FenceKeep) // it is free
			isKept := spoil(t, key)
			before := client.Get(t.Context(), lockKey).Val()
			if reply, err := d.Acquire(t.Context(), owner("c")); !errors.Is(err, driver.ErrForeign) {
				t.Errorf("Acquire: %+v, %v", reply, err)
			}
			if isKept(); client.Get(t.Context(), lockKey).Val() != before || len(wakes) > 0 {
				t.Errorf("the record was %q, and is %q; %d wakes", before, client.Get(t.Context(), lockKey).Val(), len(wakes))
			}
			client.Del(t.Context(), key)
			servers.Await(t, 10*time.Second, "the lock is granted when the data is gone", func() bool {
				b, errB := d.Acquire(t.Context(), owner("b"))
				c, errC := d.Acquire(t.Context(), owner("c"))
				return errB == nil && errC == nil && (b.Outcome == driver.Granted) != (c.Outcome == driver.Granted)
			})
		})
	}
	for name, spoiled := range map[string][]string{
		"the queue": {queueKey}, "the waiters": {waitersKey}, "the tombstones": {tombstoneKey}, "all of them": {queueKey, waitersKey, tombstoneKey},
		"a foreign sorted set as the queue": nil,
	} {
		for how, leave := range map[string]bool{"with Leave": true, "without Leave": false} {
			t.Run("release/"+name+"/"+how, func(t *testing.T) {
				queued(t)
				isKept := spoil(t, spoiled...)
				if spoiled == nil {
					client.Del(t.Context(), queueKey)
					client.ZAdd(t.Context(), queueKey, redis.Z{Score: 1, Member: "theirs"})
				}
				req := plain("a")
				req.Leave = leave
				release(t, d, req, true)
				if isKept(); !isFree(client.Get(t.Context(), lockKey).Val()) {
					t.Errorf("the record is %q", client.Get(t.Context(), lockKey).Val())
				}
			})
		}
	}
}
