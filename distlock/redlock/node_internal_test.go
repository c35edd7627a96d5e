package redlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/distlock/redlock/internal/quorum"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// calls are those that a server can answer with no.
var calls = map[string]func(ctx context.Context, n *node) (quorum.Reply, error){
	"acquire, busy": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Acquire(ctx, propose("b", time.Minute))
	},
	"acquire, too low": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Acquire(ctx, propose("a", -time.Minute))
	},
	"acquire, foreign": func(ctx context.Context, n *node) (quorum.Reply, error) {
		req := propose("a", 0)
		req.Name.Key = "foreign"
		return n.Acquire(ctx, req)
	},
	"acquire, years ahead": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Acquire(ctx, propose("a", 2*driver.FloorAhead))
	},
	"acquire, cancelled": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Acquire(ctx, propose("c", time.Minute))
	},
	"raise, not held": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Raise(ctx, driver.RaiseRequest{Name: name, Owner: owner("b"), Floor: 1})
	},
	"extend, not held": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Extend(ctx, driver.ExtendRequest{Name: name, Owner: owner("b"), TTL: time.Minute})
	},
	"release, not held": func(ctx context.Context, n *node) (quorum.Reply, error) {
		return n.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner("b")}, false)
	},
}

// A read-only replica lags behind, so its "no" has no meaning.
func TestNode_C_replica_isTemporary(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	n := open(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	n.propose(propose("a", 0), quorum.Granted)
	n.release("c", time.Minute, quorum.NotHeld)
	foreign := name
	foreign.Key = "foreign"
	do(t, server, "SET", lockKey(foreign), "theirs")
	refused := map[string]error{"acquire, foreign": driver.ErrForeign, "acquire, years ahead": driver.ErrFloor}
	for call, do := range calls {
		if _, err := do(t.Context(), n.node); !errors.Is(err, refused[call]) {
			t.Errorf("%s, on the master: %v", call, err)
		}
	}
	do(t, server, "REPLICAOF", "127.0.0.1", "1")
	for call, do := range calls {
		if _, err := do(t.Context(), n.node); !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			t.Errorf("%s, on a replica: %v, want ErrTemporary", call, err)
		}
	}
}

// A node without memory grants nothing, and ends and prolongs grants.
func TestNode_L_outOfMemory(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	n := open(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	held := propose("a", 0)
	n.propose(held, quorum.Granted)
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	other := propose("b", 0)
	other.Name.Key = "free"
	if _, err := n.Acquire(t.Context(), other); !errors.Is(err, driver.ErrRefused) || !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("Acquire: %v, want ErrRefused and ErrNotDone", err)
	}
	other.Frees = true
	n.propose(other, quorum.Granted)
	n.propose(propose("b", time.Minute), quorum.Busy)
	n.propose(held, quorum.Granted) // a copy
	n.extend("a", time.Hour, quorum.Held)
	if reply := n.raise("a", held.Token+256, quorum.Held); reply.Last != held.Token+256+quorum.Block {
		t.Errorf("Raise: %+v", reply)
	}
	n.release("a", time.Minute, quorum.Released)
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	n.propose(propose("a", time.Minute), quorum.Cancelled)
}

// stays fails the test unless a key expires after that time, or up to 2 minutes later.
func (n tested) stays(when, key string, least time.Duration) {
	n.Helper()
	left, err := n.client.PTTL(n.Context(), key).Result()
	if err != nil || left < least || left > least+2*time.Minute {
		n.Errorf("%s: %q stays for %s, %v; want %s", when, key, left, err, least)
	}
}

// The record stays for a day after its grant, and beyond the moment of its last token. Nothing else
// keeps a lower token from being granted.
func TestNode_S2_recordOutlivesItsGrant(t *testing.T) {
	n, key := onShared(t), lockKey(name)
	const ahead = 48 * time.Hour
	req := propose("a", -time.Hour)
	n.propose(req, quorum.Granted)
	n.stays("after a grant", key, driver.FenceKeep+req.TTL-time.Second)
	n.release("a", 0, quorum.Released)
	n.stays("after a release", key, driver.FenceKeep-time.Second)
	req = propose("b", ahead)
	n.propose(req, quorum.Granted)
	n.stays("after a grant ahead of the clock", key, driver.FenceKeep+ahead+req.TTL-time.Second)
	n.raise("b", req.Token+ahead.Microseconds(), quorum.Held)
	n.stays("after a raise", key, driver.FenceKeep+2*ahead-time.Second)
	n.release("b", 0, quorum.Released)
	n.stays("after its release", key, driver.FenceKeep+2*ahead-2*time.Second)
	if length := n.client.StrLen(t.Context(), key).Val(); length != 111 {
		t.Errorf("a released record has %d bytes, want no payload after 111", length)
	}
}

// A tombstone ends by itself. A later, shorter one does not shorten it.
func TestNode_S1_tombstoneIsNotShortened(t *testing.T) {
	n := onShared(t)
	for _, c := range []struct{ tombstone, want time.Duration }{
		{time.Minute, time.Minute}, {10 * time.Minute, 10 * time.Minute}, {time.Second, 10 * time.Minute}, {0, 10 * time.Minute},
	} {
		n.release("a", c.tombstone, quorum.NotHeld)
		n.stays("after a tombstone", lockAndTombstone(name, owner("a"))[1], c.want-30*time.Second)
	}
	n.propose(propose("a", 0), quorum.Cancelled)
	n.propose(propose("b", 0), quorum.Granted)
}

// Packages redlock and redislock keep records of one name under one key, and refuse those of the
// other.
func TestNode_C_foreignToRedislock(t *testing.T) {
	n := onShared(t)
	alone, err := redislock.NewDriver(n.client)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	theirs := name
	theirs.Key = "theirs"
	n.propose(propose("a", 0), quorum.Granted)
	req := driver.AcquireRequest{Name: theirs, Owner: owner("b"), TTL: time.Minute}
	if reply, err := alone.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Granted {
		t.Fatalf("redislock: %+v, %v", reply, err)
	}
	records := func() [2]string {
		return [2]string{n.client.Get(t.Context(), lockKey(name)).Val(), n.client.Get(t.Context(), lockKey(theirs)).Val()}
	}
	before := records()
	over := driver.ReleaseRequest{Name: name, Owner: owner("a"), Tombstone: time.Second}
	raise := driver.RaiseRequest{Name: name, Owner: owner("a"), Floor: 1}
	extend := driver.ExtendRequest{Name: name, Owner: owner("a"), TTL: time.Second}
	errs := make(map[string]error)
	req.Name, req.Owner = name, owner("c")
	_, errs["redislock, Acquire"] = alone.Acquire(t.Context(), req)
	_, errs["redislock, Inspect"] = alone.Inspect(t.Context(), name)
	_, errs["redislock, Release"] = alone.Release(t.Context(), over)
	_, errs["redislock, Raise"] = alone.Raise(t.Context(), raise)
	errs["redislock, Extend"] = alone.Extend(t.Context(), []driver.ExtendRequest{extend})[0].Err
	p := propose("c", 0)
	p.Name, over.Name, raise.Name, extend.Name = theirs, theirs, theirs, theirs
	_, errs["redlock, Acquire"] = n.Acquire(t.Context(), p)
	_, errs["redlock, Inspect"] = n.Inspect(t.Context(), theirs)
	_, errs["redlock, Release"] = n.Release(t.Context(), over, false)
	_, errs["redlock, Raise"] = n.Raise(t.Context(), raise)
	_, errs["redlock, Extend"] = n.Extend(t.Context(), extend)
	for call, err := range errs {
		if !errors.Is(err, driver.ErrForeign) || driver.MayHaveEffect(err) {
			t.Errorf("%s of the other's record: %v, want ErrForeign", call, err)
		}
	}
	if after := records(); after != before || before[0] == "" || before[1] == "" {
		t.Errorf("%q became %q", before, after)
	}
}

// A node sends each request once.
func TestNode_S1_lostAnswer(t *testing.T) {
	t.Parallel()
	options := onNode(t)
	proxy := faultnet.New(t, options.Addr)
	options.Addr = proxy.Addr()
	n := open(t, options)
	n.propose(propose("a", 0), quorum.Granted)
	proxy.DropReplies(faultnet.Containing("evalsha"))
	for _, call := range []string{"acquire, busy", "extend, not held", "release, not held", "raise, not held"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := calls[call](ctx, n.node)
		cancel()
		if !driver.MayHaveEffect(err) || errors.Is(err, driver.ErrReplayed) {
			t.Errorf("%s: %v, want an unknown outcome", call, err)
		}
	}
}

// All names of a namespace share its channels.
func TestNotice_fewChannels(t *testing.T) {
	used := make(map[string]bool)
	for i := range 10_000 {
		channel, message := notice(driver.Name{Namespace: "n", Key: strings.Repeat("k", i%100) + string(rune('a'+i/100))})
		if used[channel] = true; !strings.HasPrefix(channel, "n:free:") || len(message) != 16 {
			t.Fatalf("%q, %q", channel, message)
		}
	}
	if len(used) != channels {
		t.Errorf("%d channels, want %d", len(used), channels)
	}
}

// A quiet release notifies no waiter, and neither does one that ends no grant.
func TestNode_quietRelease(t *testing.T) {
	n, quiet := onShared(t), name
	quiet.Key = t.Name() // channels are those of all databases
	channel, message := notice(quiet)
	messages := n.client.Subscribe(t.Context(), channel)
	defer messages.Close()
	if _, err := messages.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, c := range []string{"a", "b"} {
		req := propose(c, time.Duration(i)*time.Minute)
		req.Name = quiet
		n.propose(req, quorum.Granted)
		for range 2 {
			reply, err := n.Release(t.Context(), driver.ReleaseRequest{Name: quiet, Owner: req.Owner}, c == "a")
			n.wants("Release", reply, err, quorum.Released)
		}
	}
	if err := n.client.Publish(t.Context(), channel, "end").Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{message, "end"} {
		if got, err := messages.ReceiveMessage(t.Context()); err != nil || got.Payload != want {
			t.Fatalf("received %v, %v; want %q", got, err, want)
		}
	}
}
