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
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRelease(t *testing.T, lease *distlock.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// waiter acquires in the background.
type waiter struct {
	t     *testing.T
	done  chan struct{}
	lease *distlock.Lease
	err   error
}

func wait(t *testing.T, ctx context.Context, l *distlock.Locker) *waiter {
	w := &waiter{t: t, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx, key, distlock.WithWait(-1))
	}()
	return w
}

func (w *waiter) got(limit time.Duration) *distlock.Lease {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(limit):
		w.t.Fatalf("no lock after %s", limit)
	}
	if w.err != nil {
		w.t.Fatal(w.err)
	}
	return w.lease
}

// A Locker listens on one connection for all waiters and locks: from its first waiter until its
// Close.
func TestQueue_oneSubscriptionPerLocker(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	holders := newLocker(t, newClient(t, server))
	waiters := newLocker(t, newClient(t, server), forever)
	mustRelease(t, mustAcquire(t, waiters))
	holder := mustAcquire(t, holders)
	if _, err := waiters.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Error(err)
	}
	if n := listeners(t, server); n != 0 {
		t.Errorf("%d subscriptions without a waiter", n)
	}
	other, err := holders.Acquire(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, t.Context(), waiters)
	var second sync.WaitGroup
	second.Go(func() {
		if err := waiters.Do(t.Context(), "other", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
	awaitWaiters(t, server, 1)
	servers.Await(t, 5*time.Second, "a waiter", func() bool { return do(t, server, "ZCARD", "distlock:{other}:queue") == "1" })
	if n := listeners(t, server); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	mustRelease(t, holder)
	mustRelease(t, other)
	mustRelease(t, first.got(10*time.Second))
	second.Wait()
	if err := waiters.Close(t.Context()); err != nil {
		t.Error(err)
	}
	servers.Await(t, 5*time.Second, "without subscriptions", func() bool { return listeners(t, server) == 0 })
}

// A waiter that leaves before its subscription is confirmed causes no warning.
func TestQueue_earlyLeave_noWarning(t *testing.T) {
	server := servers.SharedRedis(t)
	proxy := faultnet.New(t, server.Addr())
	held := proxy.HoldRequests(faultnet.Containing("subscribe"))
	holder := mustAcquire(t, newLocker(t, newClient(t, server)))
	var log strings.Builder
	l := newLocker(t, newClient(t, proxy, redis.Options{DB: server.DB()}), logTo(&log))
	ctx, cancel := context.WithCancel(t.Context())
	w := wait(t, ctx, l)
	held.Wait(1)
	cancel()
	<-w.done
	if !errors.Is(w.err, context.Canceled) {
		t.Error(w.err)
	}
	held.Release()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if log.String() != "" {
		t.Errorf("the log is %q, want no text", log.String())
	}
	mustRelease(t, holder)
}

// A lease from a forged message about a handoff lasts at most as long as the waiter's own promise.
// Its first renewal loses it. A user who can forge a message can also write the keys of the lock.
func TestQueue_N_forgedHandoff_atMostTTL(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	server := servers.StartRedis(t)
	holder := mustAcquire(t, newLocker(t, newClient(t, server)))
	w := wait(t, t.Context(), newLocker(t, newClient(t, server), ttl(limit)))
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
	forged := w.got(20 * time.Second)
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
	if err := holder.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, holder)
}

// After ten seconds of silence the subscription pings the server. A refusal is an answer, too.
func TestListen_L_silenceWithoutPingACL(t *testing.T) {
	t.Parallel()
	d, _, _ := limited(t, "ping")
	mustGrant(t, d, owner("a"))
	wakes := enqueue(t, d, "b")
	select {
	case wake, ok := <-wakes:
		t.Fatalf("notified of %+v, %t", wake, ok)
	case <-time.After(11 * time.Second):
	}
	release(t, d, plain("a"), true)
	select {
	case wake := <-wakes:
		if wake.Grant.Outcome != driver.Granted {
			t.Errorf("notified of %+v", wake)
		}
	case <-time.After(5 * time.Second):
		t.Error("the waiter was not notified")
	}
	_, stop, err := d.(driver.Listener).Listen(t.Context(), owner("c").Name, owner("c").Owner)
	if err != nil {
		t.Fatalf("the next to listen: %v", err)
	}
	stop()
}

// Waiters stop listening when the server revokes their right.
func TestListen_L_subscribeACLRevoked_ends(t *testing.T) {
	t.Parallel()
	d, _, admin := limited(t, "ping")
	mustGrant(t, d, owner("a"))
	all := []<-chan driver.Wake{enqueue(t, d, "b"), enqueue(t, d, "c")}
	must(t, admin.ACLSetUser(t.Context(), "less", "-subscribe").Err())
	must(t, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	for i, wakes := range all {
		ended := time.After(10 * time.Second)
		for open := true; open; {
			select {
			case _, open = <-wakes: // a waiter may first get a wake without a grant
			case <-ended:
				t.Fatalf("waiter %d still listens", i)
			}
		}
	}
	if _, _, err := d.(driver.Listener).Listen(t.Context(), owner("d").Name, owner("d").Owner); !errors.Is(err, driver.ErrRefused) {
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
		if !isListed(t, d, owner(c).Name) {
			t.Errorf("with %q moved, the lock is on no page", moved)
		}
		release(t, d, plain(c), true)
		finish()
	}
}

// isListed reports whether a page of List shows a name.
func isListed(t *testing.T, d driver.Driver, name driver.Name) bool {
	t.Helper()
	listed, req := false, driver.ListRequest{Namespace: name.Namespace, Limit: 1000}
	for more := true; more; more = req.After != "" {
		page, err := d.(driver.Lister).List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		listed = listed || slices.ContainsFunc(page.Names, func(l driver.Listed) bool { return l.Name == name })
		req.After = page.Next
	}
	return listed
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

// The last redirection that go-redis follows may lead to another redirection.
// Without its key there is no tombstone, and the queue stays as it is. So both fail while their slot moves,
// and the Locker repeats them.
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
	for name, spoiled := range map[string][]string{
		"the queue": {queueKey}, "the waiters": {waitersKey}, "the tombstones": {tombstoneKey}, "all of them": {queueKey, waitersKey, tombstoneKey},
		"a foreign sorted set as the queue": nil,
	} {
		for how, leave := range map[string]bool{"with Leave": true, "without Leave": false} {
			t.Run("release/"+name+"/"+how, func(t *testing.T) {
				client.FlushDB(t.Context())
				mustGrant(t, d, owner("a"))
				enqueue(t, d, "b")
				for _, key := range spoiled {
					list(t, key)
				}
				if spoiled == nil {
					client.Del(t.Context(), queueKey)
					client.ZAdd(t.Context(), queueKey, redis.Z{Score: 1, Member: "theirs"})
				}
				req := plain("a")
				req.Leave = leave
				release(t, d, req, true)
				if now := client.Get(t.Context(), lockKey).Val(); !isFree(now) {
					t.Errorf("the record is %q", now)
				}
				for _, key := range spoiled {
					if now := client.Type(t.Context(), key).Val(); now != "list" {
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
