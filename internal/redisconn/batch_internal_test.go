package redisconn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/faultnet"
	"github.com/belugalock/belugalock/internal/testservers"
)

const takeBody = `
local owner = redis.call('GET', key)
if owner then
  return {'busy', owner}
end
redis.call('SET', key, mine, 'PX', ARGV[1])
return {'granted', mine}
`

// takeScript sets a key that is not there to an owner.
var takeScript = NewScript("local key, mine = KEYS[1], ARGV[2]\n"+takeBody).WithBatch(
	NewScript("local function one(key, mine)\n"+takeBody+`end
local replies = {}
for i, key in ipairs(KEYS) do
  local fine, reply = pcall(one, key, ARGV[1 + i])
  replies[i] = fine and reply or '-' .. string.gsub(type(reply) == 'table' and reply.err or reply, '^%-', '')
end
return replies`), 1)

// wish is a call of takeScript.
type wish struct {
	key, owner string
	ttl        time.Duration
}

// wishes are for keys of different slots.
func wishes(n int) []wish {
	all := make([]wish, n)
	for i := range all {
		all[i] = wish{keyOf(nameOf(i)), fmt.Sprint("owner ", i), time.Minute}
	}
	return all
}

// taken is the answer to a wish.
type taken struct {
	words    []any
	replayed bool
	err      error
}

func (g taken) isGrant(w wish) bool {
	return g.err == nil && !g.replayed && slices.Equal(g.words, []any{"granted", w.owner})
}

// batches sends calls of takeScript, and sees the commands.
type batches struct {
	*locks
	x    *exchange
	w    *traffic
	mu   sync.Mutex
	sent []string // "evalsha 3": a command, and the number of its keys; without those of occupy
	// fault takes the place of the batch, if it is set.
	fault func(batch redis.Cmder, next func() error) error
}

func (b *batches) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *batches) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.see(cmd)
		b.mu.Lock()
		fault := b.fault
		b.mu.Unlock()
		if fault != nil && strings.HasPrefix(cmd.Name(), "eval") && cmd.Args()[firstKey-1] != 1 {
			return fault(cmd, func() error { return next(ctx, cmd) })
		}
		return next(ctx, cmd)
	}
}

func (b *batches) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.see(cmds...)
		return next(ctx, cmds)
	}
}

func (b *batches) see(cmds ...redis.Cmder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cmd := range cmds {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			continue
		}
		if key := cmd.Args()[firstKey].(string); key != keyOf(name) && !strings.HasSuffix(key, ":probe") {
			b.sent = append(b.sent, fmt.Sprint(cmd.Name(), " ", cmd.Args()[firstKey-1]))
		}
	}
}

// wantSent checks the commands since the last check, in any order.
func (b *batches) wantSent(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.sent)
	slices.Sort(want)
	if !slices.Equal(b.sent, want) {
		t.Errorf("sent %q, want %q", b.sent, want)
	}
	b.sent = nil
}

// batching makes batches whose server has the scripts, after a probe that it keeps all keys.
func batching(t *testing.T, options redis.UniversalOptions) *batches {
	t.Helper()
	s, x, w := patiently(t, options)
	b := &batches{locks: s, x: x, w: w}
	for _, script := range []*Script{takeScript, takeScript.batch} {
		if err := script.Load(t.Context(), s.client).Err(); err != nil {
			t.Fatal(err)
		}
	}
	x.conns.each(cap(x.conns.slots), func(client *redis.Client) { client.AddHook(b) })
	x.servers.Store(oneServer)
	return b
}

func (b *batches) take(ctx context.Context, w wish) taken {
	cmd, replayed := takeScript.Run(ctx, b.shared, []string{w.key}, w.ttl.Milliseconds(), w.owner)
	words, err := cmd.Slice()
	return taken{words, replayed, err}
}

// together has wishes share an exchange. It begins after the function before.
func (b *batches) together(t *testing.T, all []wish, before func()) []taken {
	t.Helper()
	end := b.x.occupy(t, b.locks, b.w)
	answers := make([]taken, len(all))
	var waiting sync.WaitGroup
	for i, wish := range all {
		waiting.Go(func() { answers[i] = b.take(context.Background(), wish) })
	}
	b.x.awaitPending(t, len(all))
	if before != nil {
		before()
	}
	end()
	waiting.Wait()
	b.x.wantIdle(t)
	b.w.reset()
	return answers
}

func TestBatch_C_eachCallHasItsOwnAnswer(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(5)
	b.client.Set(t.Context(), all[1].key, "another", 0)
	b.client.RPush(t.Context(), all[3].key, "a list")
	answers := b.together(t, all, nil)
	b.wantSent(t, "evalsha 5")
	for i, got := range answers {
		switch i {
		case 1:
			if got.err != nil || !slices.Equal(got.words, []any{"busy", "another"}) {
				t.Errorf("a busy key: %+v", got)
			}
		case 3:
			if !redis.HasErrorPrefix(got.err, "WRONGTYPE") || errors.Is(got.err, driver.ErrNotDone) {
				t.Errorf("a list: %+v", got)
			}
		default:
			if left := b.client.PTTL(t.Context(), all[i].key).Val(); !got.isGrant(all[i]) || left <= 0 || left > time.Minute {
				t.Errorf("%d: %+v, for %s", i, got, left)
			}
		}
	}
}

func TestBatch_sharedArguments_differ(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(6)
	all[1].ttl, all[3].ttl, all[5].ttl = time.Hour, time.Hour, 24*time.Hour
	for i, got := range b.together(t, all, nil) {
		left := b.client.PTTL(t.Context(), all[i].key).Val()
		if !got.isGrant(all[i]) || left > all[i].ttl || left < all[i].ttl-30*time.Second {
			t.Errorf("%d: %+v, for %s", i, got, left)
		}
	}
	b.wantSent(t, "evalsha 3", "evalsha 2", "evalsha 1")
}

func TestBatch_isBounded(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(2*maxBatch + 1)
	for i, got := range b.together(t, all, nil) {
		if !got.isGrant(all[i]) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	b.wantSent(t, "evalsha 32", "evalsha 32", "evalsha 1")
}

// A script without a batch is sent as before, beside a batch.
func TestBatch_otherScripts_shareThePipeline(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(2)
	end := b.x.occupy(t, b.locks, b.w)
	var waiting sync.WaitGroup
	for _, wish := range all {
		waiting.Go(func() {
			if got := b.take(context.Background(), wish); !got.isGrant(wish) {
				t.Errorf("%+v", got)
			}
		})
	}
	waiting.Go(func() {
		if state, err := b.Inspect(context.Background(), nameOf(7)); err != nil || state.Held {
			t.Errorf("Inspect: %+v, %v", state, err)
		}
	})
	b.x.awaitPending(t, 3)
	end()
	waiting.Wait()
	if commands, pipelines := b.w.reset(); commands != 0 || !slices.Equal(pipelines, []int{2}) {
		t.Errorf("%d commands and pipelines of %d, want one pipeline of 2", commands, pipelines)
	}
}

func TestBatch_unknownScript_isSentWhole(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(3)
	answers := b.together(t, all, func() {
		if err := b.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
	for i, got := range answers {
		if !got.isGrant(all[i]) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	b.wantSent(t, "evalsha 3", "eval 3")
}

func TestBatch_C_missingRightToOneKey(t *testing.T) {
	server := testservers.StartRedis(t)
	if _, err := server.Do("ACL", "SETUSER", "some", "reset", "on", ">p", "~n:*", "+@all"); err != nil {
		t.Fatal(err)
	}
	b := batching(t, redis.UniversalOptions{Addrs: []string{server.Addr()}, Username: "some", Password: "p"})
	all := wishes(3)
	all[1].key = "elsewhere"
	for i, got := range b.together(t, all, nil) {
		if i == 1 && !redis.HasErrorPrefix(got.err, "NOPERM") || i != 1 && !got.isGrant(all[i]) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	b.wantSent(t, "evalsha 3", "evalsha 1", "evalsha 1", "evalsha 1")
}

func TestBatch_C_lostReply_isUnknownForAll(t *testing.T) {
	for _, retries := range []int{-1, 0} {
		t.Run(fmt.Sprintf("MaxRetries %d", retries), func(t *testing.T) {
			options, proxy := proxied(t)
			options.MaxRetries = retries
			b := batching(t, options)
			all := wishes(4)
			answers := b.together(t, all, func() { proxy.DropReplies(faultnet.First(1, faultnet.Containing("owner 3"))) })
			for i, got := range answers {
				// The first copy has had an effect.
				repeated := got.err == nil && got.replayed && slices.Equal(got.words, []any{"busy", all[i].owner})
				if retries < 0 && (got.err == nil || errors.Is(got.err, driver.ErrNotDone)) || retries == 0 && !repeated {
					t.Errorf("%d: %+v", i, got)
				}
			}
		})
	}
}

// faulty makes the batch of three wishes meet a fault, and returns the errors.
func faulty(t *testing.T, fault func(batch redis.Cmder, next func() error) error) []error {
	t.Helper()
	b := batching(t, onNode(t))
	b.fault = fault
	var errs []error
	for i, got := range b.together(t, wishes(3), nil) {
		if got.err == nil {
			t.Errorf("%d: %+v", i, got)
		}
		errs = append(errs, got.err)
	}
	b.wantSent(t, "evalsha 3")
	return errs
}

func TestBatch_C_notWritten_isNotDone(t *testing.T) {
	stop := errors.New("stop")
	for _, err := range faulty(t, func(batch redis.Cmder, _ func() error) error {
		batch.SetErr(stop)
		return stop
	}) {
		if !errors.Is(err, stop) || !errors.Is(err, driver.ErrNotDone) {
			t.Errorf("error %v", err)
		}
	}
}

func TestBatch_hookEndsTheGoroutine(t *testing.T) {
	for _, err := range faulty(t, func(redis.Cmder, func() error) error { runtime.Goexit(); return nil }) {
		if !errors.Is(err, errBroken) {
			t.Errorf("error %v", err)
		}
	}
}

// A reply in another format than that of the batch grants nothing, and leaves the outcome unknown.
func TestBatch_C_damagedReply_isUnknown(t *testing.T) {
	for what, reply := range map[string]any{"short": []any{[]any{"granted", "owner 0"}}, "text": "OK", "empty": []any{}} {
		t.Run(what, func(t *testing.T) {
			for _, err := range faulty(t, func(batch redis.Cmder, next func() error) error {
				if err := next(); err != nil {
					return err
				}
				batch.(*Call).SetVal(reply)
				return nil
			}) {
				if _, kind := kindOf(err, oneNode); !errors.Is(err, errBatch) || errors.Is(err, driver.ErrNotDone) || kind != nil {
					t.Errorf("error %v of kind %v", err, kind)
				}
			}
		})
	}
}

// A proxy may have lost the reply of Redis, so its own reply does not have the calls sent again.
func TestBatch_C_unknownErrorReply_isUnknown(t *testing.T) {
	lost := refusal("ERR upstream failure")
	for _, err := range faulty(t, func(batch redis.Cmder, next func() error) error {
		if err := next(); err != nil {
			return err
		}
		batch.SetErr(lost)
		return lost
	}) {
		if err != lost {
			t.Errorf("error %v", err)
		}
	}
}

func TestBatch_callerLeaves_hurtsNoOther(t *testing.T) {
	b := batching(t, onNode(t))
	all := wishes(4)
	end := b.x.occupy(t, b.locks, b.w)
	var waiting sync.WaitGroup
	for _, wish := range all[:3] {
		waiting.Go(func() {
			if got := b.take(context.Background(), wish); !got.isGrant(wish) {
				t.Errorf("%+v", got)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left, early := make(chan taken, 1), make(chan taken, 1)
	go func() { left <- b.take(ctx, all[3]) }()
	b.x.awaitPending(t, 4)
	before, leave := context.WithCancel(t.Context())
	go func() { early <- b.take(before, wish{"n:early", "early", time.Minute}) }()
	b.x.awaitPending(t, 5)
	leave()
	if got := <-early; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, driver.ErrNotDone) {
		t.Errorf("the caller that left before: %+v", got)
	}
	release := b.w.hold() // the batch
	end()
	cancel()
	if got := <-left; !errors.Is(got.err, context.Canceled) || errors.Is(got.err, driver.ErrNotDone) {
		t.Errorf("the caller that left: %+v", got)
	}
	release()
	waiting.Wait()
	b.x.wantIdle(t)
	b.wantSent(t, "evalsha 4")
	if owner := b.client.Get(t.Context(), all[3].key).Val(); owner != all[3].owner {
		t.Errorf("the call of the caller that left has set %q", owner)
	}
	if n := b.client.Exists(t.Context(), "n:early").Val(); n != 0 {
		t.Error("a call that was taken back was sent")
	}
}

func TestBatch_cluster_hasNone(t *testing.T) {
	s := open(t, redis.UniversalOptions{Addrs: testservers.SharedTopology("cluster").Addrs()})
	b := &batches{locks: s, w: &traffic{}}
	all := make([]wish, 3)
	for i := range all {
		all[i] = wish{keyOf(name) + fmt.Sprint(" of a cluster ", i), fmt.Sprint("owner ", i), time.Minute}
		t.Cleanup(func() { s.client.Del(context.Background(), all[i].key) })
	}
	if _, err := s.Inspect(t.Context(), name); err != nil { // and the server knows the script
		t.Fatal(err)
	}
	if err := takeScript.Load(t.Context(), s.client).Err(); err != nil {
		t.Fatal(err)
	}
	b.x = s.shared.exchange(keyOf(name))
	b.x.patience = time.Hour
	if b.x.servers.Load() != severalServers {
		t.Error("a Cluster is asked whether one node keeps all keys")
	}
	b.x.conns.each(maxInFlight+2, func(client *redis.Client) { client.AddHook(b.w); client.AddHook(b) })
	for i, got := range b.together(t, all, nil) {
		if !got.isGrant(all[i]) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	b.wantSent(t, "evalsha 1", "evalsha 1", "evalsha 1")
}
