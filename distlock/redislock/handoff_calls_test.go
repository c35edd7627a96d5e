package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// restricted returns a client whose user has the documented rights, and a client of an admin.
func restricted(t *testing.T, server *servers.Redis) (client, admin *redis.Client) {
	t.Helper()
	admin = newClient(t, server)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "locker", "on", ">password", "~*", "resetchannels", "&*",
		"+evalsha", "+eval", "+get", "+getex", "+set", "+setrange", "+pexpire", "+pttl", "+time", "+zadd", "+zrem", "+zrange",
		"+zscore", "+zcard", "+zremrangebyscore", "+hset", "+hget", "+hgetall", "+hdel", "+publish", "+subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	return newClient(t, server, redis.Options{Username: "locker", Password: "password"}), admin
}

// After ten seconds of silence the subscription pings the server. A refusal is an answer, too.
func TestListen_L_silenceWithoutPingACL(t *testing.T) {
	t.Parallel()
	client, _ := restricted(t, servers.StartRedis(t))
	d := driverOver(t, client)
	mustGrant(t, d, owner("a"))
	wakes := enqueue(t, d, "b")
	select {
	case wake, ok := <-wakes:
		t.Fatalf("notified of %+v, %t", wake, ok)
	case <-time.After(11 * time.Second):
	}
	if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: owner("a").Name, Owner: owner("a").Owner}); err != nil {
		t.Fatal(err)
	}
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
	server := servers.StartRedis(t)
	client, admin := restricted(t, server)
	d := driverOver(t, client)
	mustGrant(t, d, owner("a"))
	all := []<-chan driver.Wake{enqueue(t, d, "b"), enqueue(t, d, "c")}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "locker", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
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
	d := drivers(on("cluster"))(t)
	for name, moved := range map[string][]string{"nothing is moved yet": nil, "all is moved": {lockKey}} {
		t.Run(name, func(t *testing.T) {
			req := owner("a")
			req.Owner = owner(map[bool]string{true: "b", false: "c"}[moved == nil]).Owner
			mustGrant(t, d, req)
			finish := cluster.BeginMove("{k}", moved...)
			if !isListed(t, d, req.Name) {
				t.Error("the lock is on no page")
			}
			reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			if err != nil || !reply.Released {
				t.Errorf("Release: %+v, %v", reply, err)
			}
			finish()
			servers.Await(t, 10*time.Second, "the slot on its new master", func() bool {
				state, err := d.Inspect(t.Context(), req.Name)
				if err == nil && state.Held {
					t.Fatalf("the lock is still held: %+v", state)
				}
				return err == nil
			})
		})
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

// asks is a hook that answers scripts with more than two keys like a node whose slot moves.
type asks struct{}

type asking string

func (a asking) Error() string { return string(a) }
func (asking) RedisError()     {}

func (asks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (asks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "evalsha" && args[2].(int) > 2 {
			cmd.SetErr(asking("ASK 3999 127.0.0.1:6381"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (asks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The last redirection that go-redis follows may lead to another redirection.
func TestRelease_C_afterLastRedirection(t *testing.T) {
	t.Parallel()
	client := newClient(t, servers.SharedRedis(t))
	d, req := driverOver(t, struct{ redis.UniversalClient }{client}), owner("a")
	mustGrant(t, d, req)
	client.AddHook(asks{})
	if reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !reply.Released {
		t.Errorf("Release: %+v, %v", reply, err)
	}
}

// Without its key there is no tombstone, and the queue stays as it is. So both fail while their slot moves,
// and the Locker repeats them.
func TestRelease_S1_cancelWhileSlotMoves_fails(t *testing.T) {
	client := newClient(t, servers.SharedRedis(t))
	d := driverOver(t, struct{ redis.UniversalClient }{client})
	mustGrant(t, d, owner("a"))
	client.AddHook(asks{})
	for what, req := range map[string]driver.ReleaseRequest{
		"tombstone": cancel("b"), "leave": {Name: owner("b").Name, Owner: owner("b").Owner, Leave: true},
	} {
		if reply, err := d.Release(t.Context(), req); err == nil {
			t.Errorf("%s: %+v, %v", what, reply, err)
		}
	}
}
