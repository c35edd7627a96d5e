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

var name = driver.Name{Namespace: "n", Key: "k"}

func owner(c string) string { return strings.Repeat(c, 32) }

// propose asks for a block of tokens from a moment of this machine's clock on.
func propose(c string, ahead time.Duration) quorum.Proposal {
	return quorum.Proposal{Name: name, Owner: owner(c), TTL: time.Minute, Token: time.Now().Add(ahead).UnixMicro()}
}

func mustPropose(t *testing.T, n *node, req quorum.Proposal, want quorum.Outcome) quorum.Reply {
	t.Helper()
	reply, err := n.Acquire(t.Context(), req)
	if err != nil || reply.Outcome != want {
		t.Fatalf("Acquire: %+v, %v; want %q", reply, err, want)
	}
	return reply
}

func mustRelease(t *testing.T, n *node, req driver.ReleaseRequest) {
	t.Helper()
	if reply, err := n.Release(t.Context(), req, false); err != nil || reply.Outcome != quorum.Released {
		t.Fatalf("Release: %+v, %v", reply, err)
	}
}

func second(_ quorum.Reply, err error) error { return err }

// except returns nil for an error that is expected.
func except(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// calls are those that a server can answer with no.
var calls = map[string]func(ctx context.Context, n *node) error{
	"acquire, busy": func(ctx context.Context, n *node) error {
		_, err := n.Acquire(ctx, propose("b", time.Minute))
		return err
	},
	"acquire, too low": func(ctx context.Context, n *node) error {
		_, err := n.Acquire(ctx, propose("a", -time.Minute))
		return err
	},
	"acquire, foreign": func(ctx context.Context, n *node) error {
		req := propose("a", 0)
		req.Name.Key = "foreign"
		return except(driver.ErrForeign, second(n.Acquire(ctx, req)))
	},
	"acquire, years ahead": func(ctx context.Context, n *node) error {
		return except(driver.ErrFloor, second(n.Acquire(ctx, propose("a", 2*driver.FloorAhead))))
	},
	"acquire, cancelled": func(ctx context.Context, n *node) error {
		_, err := n.Acquire(ctx, propose("c", time.Minute))
		return err
	},
	"raise, not held": func(ctx context.Context, n *node) error {
		_, err := n.Raise(ctx, driver.RaiseRequest{Name: name, Owner: owner("b"), Floor: 1})
		return err
	},
	"extend, not held": func(ctx context.Context, n *node) error {
		_, err := n.Extend(ctx, driver.ExtendRequest{Name: name, Owner: owner("b"), TTL: time.Minute})
		return err
	},
	"release, not held": func(ctx context.Context, n *node) error {
		_, err := n.Release(ctx, driver.ReleaseRequest{Name: name, Owner: owner("b")}, false)
		return err
	},
}

// A read-only replica lags behind, so its "no" has no meaning.
func TestNode_C_replica_isTemporary(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	n := openNode(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	mustPropose(t, n, propose("a", 0), quorum.Granted)
	if _, err := n.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: owner("c"), Tombstone: time.Minute}, false); err != nil {
		t.Fatal(err)
	}
	foreign := name
	foreign.Key = "foreign"
	do(t, server, "SET", lockKey(foreign), "theirs")
	for call, do := range calls {
		if err := do(t.Context(), n); err != nil {
			t.Errorf("%s, on the master: %v", call, err)
		}
	}
	do(t, server, "REPLICAOF", "127.0.0.1", "1")
	for call, do := range calls {
		if err := do(t.Context(), n); !errors.Is(err, driver.ErrTemporary) || driver.MayHaveEffect(err) {
			t.Errorf("%s, on a replica: %v, want ErrTemporary", call, err)
		}
	}
}

func do(t *testing.T, server interface {
	Do(args ...string) (string, error)
}, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// A node without memory grants nothing, and ends and prolongs grants.
func TestNode_L_outOfMemory(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	n := openNode(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	held := propose("a", 0)
	mustPropose(t, n, held, quorum.Granted)
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	other := propose("b", 0)
	other.Name.Key = "free"
	if _, err := n.Acquire(t.Context(), other); !errors.Is(err, driver.ErrRefused) || !errors.Is(err, driver.ErrNotDone) {
		t.Errorf("Acquire: %v, want ErrRefused and ErrNotDone", err)
	}
	other.Frees = true
	mustPropose(t, n, other, quorum.Granted)
	mustPropose(t, n, propose("b", time.Minute), quorum.Busy)
	mustPropose(t, n, held, quorum.Granted) // a copy
	if reply, err := n.Extend(t.Context(), driver.ExtendRequest{Name: name, Owner: owner("a"), TTL: time.Hour}); err != nil || reply.Outcome != quorum.Held {
		t.Errorf("Extend: %+v, %v", reply, err)
	}
	raise := driver.RaiseRequest{Name: name, Owner: owner("a"), Floor: held.Token + 256}
	if reply, err := n.Raise(t.Context(), raise); err != nil || reply.Last != raise.Floor+quorum.Block {
		t.Errorf("Raise: %+v, %v", reply, err)
	}
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: owner("a"), Tombstone: time.Minute})
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	mustPropose(t, n, propose("a", time.Minute), quorum.Cancelled)
}

// pttl is the TTL of a key of the shared server.
func pttl(t *testing.T, n *node, key string) time.Duration {
	t.Helper()
	ttl, err := n.client.PTTL(t.Context(), key).Result()
	if err != nil || ttl <= 0 {
		t.Fatalf("the TTL of %q is %s, %v", key, ttl, err)
	}
	return ttl
}

// The record stays for a day after its grant, and beyond the moment of its last token. Nothing else
// keeps a lower token from being granted.
func TestNode_S2_recordOutlivesItsGrant(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	const ahead = 48 * time.Hour
	atLeast := func(when string, least time.Duration) {
		t.Helper()
		if left := pttl(t, n, lockKey(name)); left < least || left > least+2*time.Minute {
			t.Errorf("%s: the record stays for %s, want %s", when, left, least)
		}
	}
	req := propose("a", -time.Hour)
	mustPropose(t, n, req, quorum.Granted)
	atLeast("after a grant", driver.FenceKeep+req.TTL-time.Second)
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: req.Owner})
	atLeast("after a release", driver.FenceKeep-time.Second)
	req = propose("b", ahead)
	mustPropose(t, n, req, quorum.Granted)
	atLeast("after a grant ahead of the clock", driver.FenceKeep+ahead+req.TTL-time.Second)
	floor := req.Token + ahead.Microseconds()
	raise := driver.RaiseRequest{Name: name, Owner: req.Owner, Floor: floor}
	if reply, err := n.Raise(t.Context(), raise); err != nil || reply.Outcome != quorum.Held {
		t.Fatalf("Raise: %+v, %v", reply, err)
	}
	atLeast("after a raise", driver.FenceKeep+2*ahead-time.Second)
	mustRelease(t, n, driver.ReleaseRequest{Name: name, Owner: req.Owner})
	atLeast("after its release", driver.FenceKeep+2*ahead-2*time.Second)
	if length := n.client.StrLen(t.Context(), lockKey(name)).Val(); length != 111 {
		t.Errorf("a released record has %d bytes, want no payload after 111", length)
	}
}

// A tombstone ends by itself. A later, shorter one does not shorten it.
func TestNode_S1_tombstoneIsNotShortened(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	key := lockAndTombstone(name, owner("a"))[1]
	for _, c := range []struct{ tombstone, want time.Duration }{
		{time.Minute, time.Minute}, {2 * time.Minute, 2 * time.Minute}, {time.Second, 2 * time.Minute}, {0, 2 * time.Minute},
	} {
		req := driver.ReleaseRequest{Name: name, Owner: owner("a"), Tombstone: c.tombstone}
		if reply, err := n.Release(t.Context(), req, false); err != nil || reply.Outcome != quorum.NotHeld {
			t.Fatalf("Release: %+v, %v", reply, err)
		}
		if left := pttl(t, n, key); left > c.want || left < c.want-30*time.Second {
			t.Errorf("after a tombstone of %s: %s left, want %s", c.tombstone, left, c.want)
		}
	}
	mustPropose(t, n, propose("a", 0), quorum.Cancelled)
	mustPropose(t, n, propose("b", 0), quorum.Granted)
}

// Packages redlock and redislock keep records of one name under one key, and refuse those of the
// other.
func TestNode_C_foreignToRedislock(t *testing.T) {
	t.Parallel()
	n := openNode(t, onNode(t))
	alone, err := redislock.NewDriver(n.client)
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	theirs := name
	theirs.Key = "theirs"
	mustPropose(t, n, propose("a", 0), quorum.Granted)
	req := driver.AcquireRequest{Name: theirs, Owner: owner("b"), TTL: time.Minute}
	if reply, err := alone.Acquire(t.Context(), req); err != nil || reply.Outcome != driver.Granted {
		t.Fatalf("redislock: %+v, %v", reply, err)
	}
	before := [2]string{n.client.Get(t.Context(), lockKey(name)).Val(), n.client.Get(t.Context(), lockKey(theirs)).Val()}
	over := driver.ReleaseRequest{Owner: owner("a"), Tombstone: time.Second}
	raise := driver.RaiseRequest{Owner: owner("a"), Floor: 1}
	extend := driver.ExtendRequest{Owner: owner("a"), TTL: time.Second}
	errs := make(map[string]error)
	req.Name, req.Owner, over.Name, raise.Name, extend.Name = name, owner("c"), name, name, name
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
	after := [2]string{n.client.Get(t.Context(), lockKey(name)).Val(), n.client.Get(t.Context(), lockKey(theirs)).Val()}
	if after != before || before[0] == "" || before[1] == "" {
		t.Errorf("%q became %q", before, after)
	}
}

// A node sends each request once.
func TestNode_S1_lostAnswer(t *testing.T) {
	t.Parallel()
	db := servers.SharedRedis(t)
	proxy := faultnet.New(t, db.Addr())
	n := openNode(t, &redis.Options{Addr: proxy.Addr(), DB: db.DB(), ContextTimeoutEnabled: true})
	mustPropose(t, n, propose("a", 0), quorum.Granted)
	proxy.DropReplies(faultnet.Containing("evalsha"))
	for _, call := range []string{"acquire, busy", "extend, not held", "release, not held", "raise, not held"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := calls[call](ctx, n)
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
	t.Parallel()
	n := openNode(t, onNode(t))
	quiet := name
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
		mustPropose(t, n, req, quorum.Granted)
		for range 2 {
			over := driver.ReleaseRequest{Name: quiet, Owner: req.Owner}
			if reply, err := n.Release(t.Context(), over, c == "a"); err != nil || reply.Outcome != quorum.Released {
				t.Fatalf("Release: %+v, %v", reply, err)
			}
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
