package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// The keys of a lock: their lifetimes, and how the driver treats data that another program or an
// operator has changed.

const (
	lockKey      = "n:{k}:lock"
	queueKey     = "n:{k}:queue"
	waitersKey   = "n:{k}:waiters"
	tombstoneKey = "n:{k}:tombstones"
)

// isFree reports whether a record shows no holder. It does not look at the TTL.
func isFree(record string) bool {
	return record == "" || strings.HasPrefix(record, "b2r") || strings.HasPrefix(record, "b2R")
}

// record makes the record of an owner, with the last token of its block.
func record(state, owner string, last int64) string {
	return fmt.Sprintf("b2%s.%s%032d%016d%016d%011d{}", state, strings.Repeat(owner, 32), 0, last, last, driver.FenceKeep.Milliseconds())
}

func owner(c string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: driver.Name{Namespace: "n", Key: "k"}, Owner: strings.Repeat(c, 32), TTL: time.Minute, Metadata: map[string]string{driver.WorkKey: "the work"}}
}

func newDriver(t *testing.T) (driver.Driver, *redis.Client) {
	t.Helper()
	client := newClient(t, servers.SharedRedis(t))
	return driverOver(t, client), client
}

func mustGrant(t *testing.T, d driver.Driver, req driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := d.Acquire(t.Context(), req)
	if err != nil || reply.Outcome != driver.Granted {
		t.Fatalf("Acquire: %+v, %v", reply, err)
	}
	return reply
}

// At most 1,000 tombstones stay, and the newest is one of them.
func TestRelease_tombstones_areBoundedAndExpire(t *testing.T) {
	d, client := newDriver(t)
	for i := range 1000 {
		client.ZAdd(t.Context(), tombstoneKey, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli() + int64(i)), Member: fmt.Sprintf("%032d", i)})
	}
	release(t, d, cancel("a"), false)
	members := client.ZRange(t.Context(), tombstoneKey, 0, -1).Val()
	if len(members) != 1000 || !slices.Contains(members, owner("a").Owner) || slices.Contains(members, fmt.Sprintf("%032d", 0)) {
		t.Errorf("%d tombstones, the first are %q", len(members), members[:2])
	}
	client.Del(t.Context(), tombstoneKey)
	release(t, d, cancel("a"), false)
	if left := client.PTTL(t.Context(), tombstoneKey).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the tombstones expire in %s", left)
	}
}

// A record outlives its lock by a day. Then it is small.
func TestRelease_longPayload_isDropped(t *testing.T) {
	for name, queue := range map[string]bool{"alone": false, "with a queue": true} {
		t.Run(name, func(t *testing.T) {
			d, client := newDriver(t)
			req := owner("a")
			req.Metadata = map[string]string{"traceparent": strings.Repeat("x", 100)}
			mustGrant(t, d, req)
			if queue {
				enqueue(t, d, "b")
				must(t, call(t.Context(), d, "leave", "k", "b"))
				enqueue(t, d, "c")
				client.Del(t.Context(), waitersKey) // so that the queue has no live waiter
			}
			release(t, d, plain("a"), true)
			if kept := client.Get(t.Context(), lockKey).Val(); len(kept) > 111+64 || !isFree(kept) {
				t.Errorf("Redis keeps %d bytes: %s", len(kept), kept)
			}
		})
	}
}

// broken are texts in the place of a record.
func broken(state string) map[string]string {
	whole := record(state, "a", 1795225289917391)
	return map[string]string{
		"empty": "", "another text": "theirs", "another version": over(whole, 1, "b1"), "a state": over(whole, 3, "x"), "an end": over(whole, 4, "x"),
		"without numbers": whole[:68], "cut in the token": whole[:80], "cut in the block": whole[:99], "cut in keep": whole[:105], "cut at the end": whole[:110],
	}
}

// damaged are records in which a number has another character.
func damaged(state string) map[string]string {
	whole := record(state, "a", 1795225289917391)
	return map[string]string{
		"the token": over(whole, 84, "x"), "the block": over(whole, 100, "x"), "keep": over(whole, 111, "x"), "a blank": over(whole, 85, " "),
		"hexadecimal": over(whole, 85, "0x"), "a fraction": over(whole, 99, "."), "not a number": over(whole, 85, "nan             "), "a sign": over(whole, 101, "-"),
	}
}

// over writes text over a record, from a byte on. The first is 1.
func over(record string, at int, text string) string {
	return record[:at-1] + text + record[at-1+len(text):]
}

// A damaged record is no lock. It stays as it is, and the error says what to do.
// Without the record the name is free again.
//
// For their speed, an acquire that finds the lock released, and a release without a queue, look only
// at the numbers that they use.
func TestDriver_C_damagedRecord_isRefused(t *testing.T) {
	d, client := newDriver(t)
	for state, of := range map[string]string{"held": "h", "released": "r", "held and flagged": "H", "released and flagged": "R"} {
		records := broken(of)
		maps.Copy(records, damaged(of))
		for name, record := range records {
			for who, c := range map[string]string{"its owner": "a", "another owner": "b"} {
				t.Run(state+"/"+name+"/"+who, func(t *testing.T) {
					client.FlushDB(t.Context())
					client.Set(t.Context(), lockKey, record, driver.FenceKeep+time.Hour)
					for _, what := range strings.Fields("acquire wait extend raise ask release leave cancel break inspect") {
						if _, number := damaged(of)[name]; number && (of == "r" && what == "acquire" || of == "h" && what == "release" && name != "keep") {
							continue
						}
						err := call(t.Context(), d, what, "k", c)
						if !errors.Is(err, driver.ErrForeign) || driver.MayHaveEffect(err) || !strings.Contains(err.Error(), "remove the") {
							t.Errorf("%s: %v; want ErrForeign, and what to do", what, err)
						}
					}
					if keys := client.Keys(t.Context(), "*").Val(); client.Get(t.Context(), lockKey).Val() != record || len(keys) != 1 {
						t.Errorf("there are %q now, and the record is %q", keys, client.Get(t.Context(), lockKey).Val())
					}
					if ttl := client.PTTL(t.Context(), lockKey).Val(); ttl > driver.FenceKeep+time.Hour || ttl < driver.FenceKeep+time.Hour-time.Minute {
						t.Errorf("it expires in %s", ttl)
					}
				})
			}
		}
	}
	client.Del(t.Context(), lockKey)
	mustGrant(t, d, owner("b"))
}

// listed are the names of the namespace n, on all pages.
func listed(t *testing.T, d driver.Driver) (names []driver.Name) {
	t.Helper()
	req := driver.ListRequest{Namespace: "n", Limit: 1000}
	for more := true; more; more = req.After != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		page, err := d.(driver.Lister).List(ctx, req)
		cancel()
		must(t, err)
		for _, l := range page.Names {
			names = append(names, l.Name)
		}
		req.After = page.Next
	}
	return names
}

// A page whose answer is lost is asked for again. Data of another program in the place of a lock is on no
// page, and the other locks are.
func TestList_C_showsAllLocks(t *testing.T) {
	db := servers.SharedRedis(t)
	proxy, client := faultnet.New(t, db.Addr()), newClient(t, db)
	d := driverOver(t, newClient(t, proxy, redis.Options{DB: db.DB()}))
	mustGrant(t, d, owner("a"))
	client.RPush(t.Context(), "n:{list}:lock", "theirs")
	client.Set(t.Context(), "n:{text}:lock", "theirs", 0)
	for _, command := range []string{"scan", "evalsha"} {
		lost := proxy.DropReplies(faultnet.First(1, faultnet.Containing(command)))
		if names := listed(t, d); len(names) != 1 || names[0] != owner("a").Name || lost.Count() != 1 {
			t.Errorf("%s: %+v, with %d answers lost", command, names, lost.Count())
		}
	}
}

// A page needs the same number of round trips for one name and for a thousand.
func TestList_farServer_thousandNames(t *testing.T) {
	t.Parallel()
	db := servers.SharedRedis(t)
	proxy := faultnet.New(t, db.Addr())
	near, far := newClient(t, db), driverOver(t, newClient(t, proxy, redis.Options{DB: db.DB()}))
	const names = 1000
	pipe := near.Pipeline()
	for i := range names {
		pipe.Set(t.Context(), fmt.Sprintf("n:{%d}:lock", i), record("h", "a", 1795225289917391), driver.FenceKeep+time.Hour)
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	proxy.Latency(60 * time.Millisecond) // each way
	if n := len(listed(t, far)); n != names {
		t.Errorf("%d names, want %d", n, names)
	}
}

// A record that was restored without a TTL is held until its owner, or an operator, releases it. A released
// one expires after the next full script.
func TestAcquire_S1_restoredWithoutTTL_isHeld(t *testing.T) {
	d, client := newDriver(t)
	expires := func(after string, in time.Duration) {
		t.Helper()
		if left := client.PTTL(t.Context(), lockKey).Val(); left < in-time.Minute || left > in+time.Minute {
			t.Errorf("after %s the record expires in %s", after, left)
		}
		client.Persist(t.Context(), lockKey)
	}
	mustGrant(t, d, owner("a"))
	client.Persist(t.Context(), lockKey)
	if reply, err := d.Acquire(t.Context(), owner("b")); err != nil || reply.Outcome != driver.Busy || reply.State.TTL >= 0 {
		t.Errorf("%+v, %v", reply, err)
	}
	must(t, call(t.Context(), d, "extend", "k", "a"))
	expires("an extend", driver.FenceKeep+time.Minute)
	release(t, d, plain("a"), true)
	expires("a release", driver.FenceKeep)
	release(t, d, cancel("b"), false)
	expires("a full script", driver.FenceKeep)
}

// A server without memory prolongs, asks, releases and hands off locks, and keeps tombstones.
func TestRelease_S1_outOfMemory(t *testing.T) {
	d, client := newDriver(t)
	mustGrant(t, d, owner("a"))
	handed, waiter := owner("a"), waits("b")
	handed.Name.Key, waiter.Name.Key = "handed", "handed"
	mustGrant(t, d, handed)
	if reply, err := d.Acquire(t.Context(), waiter); err != nil || reply.Ticket == 0 {
		t.Fatalf("the owner is not in the queue: %+v, %v", reply, err)
	}
	must(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	defer client.ConfigSet(context.Background(), "maxmemory", "0")
	extend := driver.ExtendRequest{Name: owner("a").Name, Owner: owner("a").Owner, TTL: time.Hour}
	must(t, call(t.Context(), d, "ask", "k", "a"))
	must(t, call(t.Context(), d, "ask", "free", "a"))
	if reply := d.Extend(t.Context(), []driver.ExtendRequest{extend})[0]; reply.Err != nil || !reply.Asked {
		t.Errorf("Extend: %+v", reply)
	}
	release(t, d, driver.ReleaseRequest{Name: handed.Name, Owner: handed.Owner}, true)
	mustGrant(t, d, waiter)
	release(t, d, cancel("a"), true)
	release(t, d, plain("a"), true) // a copy
	if now := client.Get(t.Context(), lockKey).Val(); !isFree(now) {
		t.Errorf("the record is %q", now)
	}
	release(t, d, cancel("b"), false)
	if n := client.ZCard(t.Context(), tombstoneKey).Val(); n != 2 {
		t.Errorf("%d tombstones, want 2", n)
	}
	if err := call(t.Context(), d, "acquire", "k", "c"); !errors.Is(err, driver.ErrRefused) {
		t.Errorf("an acquire without memory: %v", err)
	}
	frees := owner("d")
	frees.Frees = true
	mustGrant(t, d, frees)
	frees.Name.Key = "new"
	mustGrant(t, d, frees)
}

// A Cluster runs a script at the node of its KEYS, so a script must touch no other key.
func TestScripts_touchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	client := newClient(t, servers.StartRedis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000"))
	d := driverOver(t, client)
	mustGrant(t, d, owner("a"))
	for _, c := range []string{"b", "c", "d"} {
		if reply, err := d.Acquire(t.Context(), waits(c)); err != nil || reply.Outcome != driver.Busy {
			t.Fatalf("Acquire: %+v, %v", reply, err)
		}
	}
	// A request that does not wait learns how many wait.
	if reply, err := d.Acquire(t.Context(), owner("e")); err != nil || reply.Outcome != driver.Busy || reply.State.Waiters != 3 {
		t.Errorf("%+v, %v", reply, err)
	}
	must(t, call(t.Context(), d, "raise", "k", "a"))
	must(t, call(t.Context(), d, "extend", "k", "a"))
	must(t, call(t.Context(), d, "ask", "k", "a"))
	page, err := d.(driver.Lister).List(t.Context(), driver.ListRequest{Namespace: "n", Limit: 10, Waiters: 10})
	if err != nil || len(page.Names) != 1 || len(page.Names[0].Queue) != 3 {
		t.Fatalf("List: %+v, %v", page, err)
	}
	release(t, d, plain("a"), true)
	gone := cancel("c")
	gone.Leave = true
	release(t, d, gone, false)
	if state, err := d.Inspect(t.Context(), owner("a").Name); err != nil || state.Waiters != 1 {
		t.Fatalf("Inspect: %+v, %v", state, err)
	}
	if broken, err := d.(driver.Breaker).Break(t.Context(), owner("b").Name, mustGrant(t, d, owner("b")).Fence); err != nil || !broken {
		t.Fatalf("Break: %t, %v", broken, err)
	}
	mustGrant(t, d, owner("d"))

	var keys []string // of a script; the SLOWLOG, from its end, has it before its commands
	commands := make(map[string]bool)
	for _, entry := range client.SlowLogGet(t.Context(), -1).Val() {
		switch verb := strings.ToLower(entry.Args[0]); verb {
		case "evalsha", "eval":
			keys = entry.Args[3 : 3+entry.Args[2][0]-'0']
		case "hello", "client", "ping", "scan", "time", "publish": // no keys
			commands[verb] = true
		default:
			if commands[verb] = true; !slices.Contains(keys, entry.Args[1]) {
				t.Errorf("a script with the keys %q runs %q", keys, entry.Args)
			}
		}
	}
	for _, want := range strings.Fields("set setrange getex pexpire zadd zrem hset publish zremrangebyscore") {
		if !commands[want] {
			t.Errorf("no script ran %q, so this test is too weak", want)
		}
	}
}
