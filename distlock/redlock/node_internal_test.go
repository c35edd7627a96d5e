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

// at is a proposal of the same owner under another token.
func at(p quorum.Proposal, token int64) quorum.Proposal {
	p.Token = token
	return p
}

func (n tested) state() quorum.State {
	n.Helper()
	reply, err := n.Inspect(n.Context(), name)
	if err != nil || reply.State.Held != (reply.Outcome == quorum.Busy) {
		n.Fatalf("Inspect: %+v, %v", reply, err)
	}
	return reply.State
}

// A reply that a proxy or another version has changed is refused.
func TestParse_S2_invalidReply_refused(t *testing.T) {
	const last, now = int64(1795225289897646), int64(1795225290897000)
	busy := []any{"busy", last, now, strings.Repeat("a", 32), last - quorum.Block, `{"h":"x"}`, int64(1e6), int64(5000)}
	got, err := parse([]any{"granted", last, now})
	if err != nil || got.Outcome != quorum.Granted || got.Last != last || got.Clock != now {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parse([]any{"too low", int64(0), now}); err != nil || got.Outcome != quorum.TooLow || got.Last != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = parse(busy)
	if s := got.State; err != nil || !s.Held || s.Holder != "x" || s.Fence != last-quorum.Block || s.TTL != 5*time.Second || s.Age != time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	for what, parts := range map[string][]any{
		"nothing": {}, "an unknown word": {"full", last, now}, "a number": {int64(1), last, now}, "no last": {"cancelled"},
		"no clock": {"cancelled", last}, "a clock of 0": {"cancelled", last, int64(0)}, "a negative last": {"too low", int64(-1), now},
		"more": {"cancelled", last, now, last}, "a last of 2^53": {"too low", driver.MaxFence + 1, now},
		"text": {"granted", "1", now}, "busy, no holder": {"busy", last, now}, "busy, no TTL": busy[:7],
		"busy, more": append(busy[:8:8], now), "busy, a negative token": append(append(busy[:4:4], int64(-1)), busy[5:]...),
	} {
		if got, err := parse(parts); err == nil || got.Outcome != "" {
			t.Errorf("%s: %+v, want an error", what, got)
		}
	}
}

func TestNode(t *testing.T) {
	for name, test := range onOneNode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, onNode(t)))
		})
	}
}

var onOneNode = map[string]func(t *testing.T, n tested){
	// A tombstone ends by itself. A later, shorter one does not shorten it.
	"Node_S1_tombstoneIsNotShortened": func(t *testing.T, n tested) {
		for _, c := range []struct{ tombstone, want time.Duration }{
			{time.Minute, time.Minute}, {10 * time.Minute, 10 * time.Minute}, {time.Second, 10 * time.Minute}, {0, 10 * time.Minute},
		} {
			n.release("a", c.tombstone, quorum.NotHeld)
			n.stays("after a tombstone", lockAndTombstone(name, owner("a"))[1], c.want-30*time.Second)
		}
		n.propose(propose("a", 0), quorum.Cancelled)
		n.propose(propose("b", 0), quorum.Granted)
	},
	// Packages redlock and redislock keep records of one name under one key, and refuse those of the
	// other.
	"Node_C_foreignToRedislock": func(t *testing.T, n tested) {
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
	},
	"Acquire_S2_tokenAboveTheLast": func(t *testing.T, n tested) {
		shows := func(reply quorum.Reply, p quorum.Proposal) {
			t.Helper()
			if reply.Last != p.Token+quorum.Block {
				t.Errorf("the last token is %d, want %d", reply.Last, p.Token+quorum.Block)
			}
			if ahead := time.Until(time.UnixMicro(reply.Clock)).Abs(); ahead > time.Minute {
				t.Errorf("the clock is %s off", ahead)
			}
		}
		first := propose("a", time.Hour)
		shows(n.propose(first, quorum.Granted), first)
		shows(n.propose(first, quorum.Granted), first) // a copy
		if s := n.state(); s.Fence != first.Token || s.Owner != first.Owner {
			t.Errorf("%+v", s)
		}
		shows(n.propose(propose("b", 0), quorum.Busy), first)
		n.release("a", 0, quorum.Released)
		for _, low := range []int64{time.Now().UnixMicro(), first.Token, first.Token + quorum.Block} {
			shows(n.propose(at(propose("b", 0), low), quorum.TooLow), first)
		}
		if n.state().Held {
			t.Error("a proposal that was too low has taken the name")
		}
		next := at(propose("b", 0), first.Token+quorum.Block+1)
		shows(n.propose(next, quorum.Granted), next)
	},
	"Acquire_S2_tokenNearTheClock": func(t *testing.T, n tested) {
		n.propose(propose("a", -driver.FenceKeep-time.Hour), quorum.TooLow)
		if reply, err := n.Acquire(t.Context(), propose("a", driver.FloorAhead+time.Hour)); !errors.Is(err, driver.ErrFloor) || driver.MayHaveEffect(err) {
			t.Errorf("a token more than a year ahead: %+v, %v; want ErrFloor", reply, err)
		}
		if n.state().Held {
			t.Error("a refused proposal has taken the name")
		}
		n.propose(propose("a", -driver.FenceKeep+time.Hour), quorum.Granted)
	},
	"Acquire_S1_tokenOfTheHolderRises": func(t *testing.T, n tested) {
		held := propose("a", 0)
		n.propose(held, quorum.Granted)
		n.propose(at(held, held.Token+1), quorum.TooLow) // inside its block
		higher := at(held, held.Token+quorum.Block+1)
		higher.TTL = 2 * held.TTL
		n.propose(higher, quorum.Granted)
		if s := n.state(); s.Fence != higher.Token || s.TTL <= held.TTL {
			t.Errorf("%+v, want the token %d and a TTL of %s", s, higher.Token, higher.TTL)
		}
		n.propose(held, quorum.TooLow) // a copy that comes late
	},
	// A copy leaves the TTL of an extended grant.
	"Acquire_S1_copyShortensNothing": func(t *testing.T, n tested) {
		held := propose("a", 0)
		n.propose(held, quorum.Granted)
		for _, ttl := range []time.Duration{10 * held.TTL, held.TTL} {
			n.extend("a", ttl, quorum.Held)
			n.propose(held, quorum.Granted)
			if left := n.state().TTL; left <= 9*held.TTL {
				t.Errorf("%s left", left)
			}
		}
	},
	// A node that lost a grant by its TTL grants the name to its owner again, under a higher token.
	"Acquire_S2_blockIsGrantedOnce": func(t *testing.T, n tested) {
		held := propose("a", 0)
		held.TTL = 300 * time.Millisecond
		n.propose(held, quorum.Granted)
		servers.Await(t, 20*time.Second, "the end of the grant", func() bool { return !n.state().Held })
		n.extend("a", time.Minute, quorum.NotHeld)
		n.propose(held, quorum.TooLow)
		n.propose(at(held, held.Token+quorum.Block+1), quorum.Granted)
	},
	"Acquire_S1_cancelledOwnerIsRefused": func(t *testing.T, n tested) {
		n.release("a", time.Minute, quorum.NotHeld)
		n.propose(propose("a", 0), quorum.Cancelled)
		released := propose("b", 0)
		n.propose(released, quorum.Granted)
		n.release("b", 0, quorum.Released)
		n.propose(released, quorum.Cancelled)
		n.propose(at(released, released.Token+time.Hour.Microseconds()), quorum.Cancelled)
		n.propose(propose("c", time.Hour), quorum.Granted) // the owner before is still known
		n.release("b", 0, quorum.Released)
		n.release("c", 0, quorum.Released)
		n.propose(propose("b", 2*time.Hour), quorum.Cancelled)
	},
	"Raise_S2_tokenAboveTheBlock": func(t *testing.T, n tested) {
		held := propose("a", 0)
		n.propose(held, quorum.Granted)
		next := held.Token + quorum.Block + 1
		for _, c := range []struct{ floor, want int64 }{
			// not above the block: the grant keeps its tokens
			{held.Token, held.Token}, {held.Token + quorum.Block, held.Token},
			{next + 7, next + 7}, {next + 7, next + 7}, {next, next + 7},
		} {
			if reply := n.raise("a", c.floor, quorum.Held); reply.Last != c.want+quorum.Block {
				t.Errorf("a raise to %d: %+v; want %d", c.floor, reply, c.want)
			}
		}
		if left := n.state().TTL; left > held.TTL {
			t.Errorf("a raise has prolonged the grant to %s", left)
		}
		far := driver.RaiseRequest{Name: name, Owner: held.Owner, Floor: time.Now().Add(driver.FloorAhead + time.Hour).UnixMicro()}
		if reply, err := n.Raise(t.Context(), far); !errors.Is(err, driver.ErrFloor) {
			t.Errorf("a raise by more than a year: %+v, %v", reply, err)
		}
		n.release("a", 0, quorum.Released)
		n.propose(at(propose("b", 0), next+7+quorum.Block), quorum.TooLow)
	},
	"Node_S1_onlyTheOwner": func(t *testing.T, n tested) {
		held := propose("a", 0)
		held.Holder = "first"
		n.propose(held, quorum.Granted)
		n.extend("b", time.Hour, quorum.NotHeld)
		n.raise("b", held.Token+time.Hour.Microseconds(), quorum.NotHeld)
		n.release("b", 0, quorum.NotHeld)
		s := n.propose(propose("b", time.Hour), quorum.Busy).State
		if s.Holder != "first" || s.Owner != held.Owner || s.Fence != held.Token || s.TTL <= held.TTL/2 || s.TTL > held.TTL {
			t.Errorf("a busy reply shows %+v, want the holder", s)
		}
		n.extend("a", time.Hour, quorum.Held)
		if s := n.state(); s.TTL <= held.TTL {
			t.Errorf("an Extend of the owner: %+v", s)
		}
	},
	// A record that no quorum has written is never taken for a lock.
	"Node_C_foreignTextIsRefused": func(t *testing.T, n tested) {
		const record = "q1h." + "0123456789abcdef0123456789abcdef" + "00000000000000000000000000000000" +
			"1795225289897391" + "00086401000" + "1795225289897000" + `{"h":"x"}`
		with := func(at int, text string) string { return record[:at-1] + text + record[at-1+len(text):] }
		inspect := func(text string) (quorum.State, error) {
			if err := n.client.Set(t.Context(), lockKey(name), text, driver.FenceKeep+6*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
			reply, err := n.Inspect(t.Context(), name)
			return reply.State, err
		}
		s, err := inspect(record)
		if err != nil || !s.Held || s.Owner != "0123456789abcdef0123456789abcdef" || s.Holder != "x" || s.Fence != 1795225289897391 ||
			s.TTL <= 4*time.Second || s.TTL > 5*time.Second {
			t.Errorf("%+v, %v", s, err)
		}
		for what, text := range map[string]string{"released": with(3, "r"), "expired": with(85, "00086420000")} {
			if s, err := inspect(text); err != nil || s.Held {
				t.Errorf("%s: %+v, %v", what, s, err)
			}
		}
		for what, text := range map[string]string{
			"nothing": "", "of redislock": with(1, "b2"), "no state": with(3, "x"), "flagged": with(3, "H"), "no dot": with(4, "!"),
			"cut off": record[:110], "no token": with(69, "179522528989739x"), "no keep": with(85, "0008640002x"),
			"no moment": with(96, "179522528989700x"), "no payload": record[:111] + "{",
		} {
			if s, err := inspect(text); !errors.Is(err, driver.ErrForeign) || s.Held {
				t.Errorf("%s: %+v, %v; want ErrForeign", what, s, err)
			}
		}
	},
	// The record stays for a day after its grant, and beyond the moment of its last token. Nothing else
	// keeps a lower token from being granted.
	"Node_S2_recordOutlivesItsGrant": func(t *testing.T, n tested) {
		key := lockKey(name)
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
	},
	// A quiet release notifies no waiter, and neither does one that ends no grant.
	"Node_quietRelease": func(t *testing.T, n tested) {
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
	},
}
