package redislock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

const key = "secret-session-id"

func newLocker(tb testing.TB, client redis.UniversalClient, opts distlock.Options) *distlock.Locker {
	tb.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := redislock.New(client, &opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return l
}

func TestNew_unsuitableClients_refused(t *testing.T) {
	var none *redis.Client
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, client := range map[string]redis.UniversalClient{"nil": nil, "nil pointer": none, "Ring": ring} {
		if l, err := redislock.New(client, nil); l != nil || !errors.Is(err, distlock.ErrInvalidOption) {
			t.Errorf("%s: %v, %v, want ErrInvalidOption", name, l, err)
		}
	}
}

func TestLocker_onRealServer(t *testing.T) {
	server := servers.SharedRedis(t)
	client := newClient(t, server)
	l := newLocker(t, client, distlock.Options{Holder: "test", TTL: 5 * time.Second})
	lease := mustAcquire(t, l)
	info, err := l.Inspect(t.Context(), key)
	if err != nil || !info.Held || info.Holder != "test" || info.Fence != lease.Fence() || info.TTL <= 0 || info.TTL > 5*time.Second {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	var busy *distlock.BusyError
	if _, err := l.TryAcquire(t.Context(), key); !errors.As(err, &busy) || busy.Holder != "test" {
		t.Errorf("TryAcquire: %v", err)
	}
	mustRelease(t, lease)
	again, err := l.Acquire(t.Context(), key) // over the record of the first
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, again)
	// The remaining keys expire: the record, and after a slow answer the tombstone of its owner.
	if !isFree(client.Get(t.Context(), "distlock:{"+key+"}:lock").Val()) {
		t.Error("the lock is still held")
	}
	for _, left := range client.Keys(t.Context(), "*").Val() {
		expires := client.PTTL(t.Context(), left).Val()
		switch {
		case left == "distlock:{"+key+"}:lock" && expires > driver.FenceKeep-time.Minute && expires < driver.FenceKeep+time.Minute:
		case left == "distlock:{"+key+"}:tombstones" && expires > 0 && expires <= 2*time.Minute:
		default:
			t.Errorf("%q is left, and expires in %s", left, expires)
		}
	}
}

func TestLocker_C_wrongPassword_refused(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--requirepass", "right")
	for name, client := range map[string]*redis.Client{
		"wrong": newClient(t, server, redis.Options{Password: "wrong"}),
		"none":  newClient(t, server),
	} {
		_, err := newLocker(t, client, distlock.Options{}).Acquire(t.Context(), key)
		wantKind(t, err, distlock.ErrRefused, "check the user and password")
		if err != nil && strings.Contains(err.Error(), "wrong\"") {
			t.Errorf("%s: the text shows the password: %v", name, err)
		}
	}
}

// wantKind tests that an Acquire failed with an error of a kind and the given texts.
func wantKind(t *testing.T, err, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) || errors.Is(err, distlock.ErrNotAcquired) {
		t.Errorf("%v, want %v", err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not contain %q", err, text)
		}
	}
	if strings.Contains(err.Error(), key) {
		t.Errorf("the text shows the key: %v", err)
	}
}

// The driver never overwrites data of another program, and callers do not wait for its end.
func TestLocker_S1_foreignData_isKept(t *testing.T) {
	server := servers.SharedRedis(t)
	client := newClient(t, server)
	prefix := "distlock:{" + key + "}:"
	for name, put := range map[string]func() error{
		"list":            func() error { return client.RPush(t.Context(), prefix+"lock", "x").Err() },
		"other library":   func() error { return client.Set(t.Context(), prefix+"lock", "3f2a", 0).Err() },
		"another version": func() error { return client.Set(t.Context(), prefix+"lock", "b1"+record("h", "a", 5)[2:], 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			if err := client.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			if err := put(); err != nil {
				t.Fatal(err)
			}
			before := dump(t, client)
			l := newLocker(t, client, distlock.Options{Wait: -1})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, key)
			wantKind(t, err, distlock.ErrRefused, "choose another Namespace")
			if !errors.Is(err, driver.ErrForeign) || ctx.Err() != nil {
				t.Errorf("Acquire: %v", err)
			}
			if err := l.Close(t.Context()); err != nil { // the end of all clean-up
				t.Errorf("Close: %v", err)
			}
			if after := dump(t, client); !bytes.Equal(before, after) {
				t.Errorf("changed from %q to %q", before, after)
			}
		})
	}
}

// dump is everything in the server.
func dump(t *testing.T, client *redis.Client) []byte {
	t.Helper()
	var all []byte
	for _, k := range client.Keys(t.Context(), "*").Val() {
		all = append(all, k+"="+client.Dump(t.Context(), k).Val()+"\n"...)
	}
	return all
}

func TestLocker_survivesScriptFlush(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := newClient(t, server)
	l := newLocker(t, client, distlock.Options{RenewEvery: -1})
	flush := func() {
		t.Helper()
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		flush()
		lease := mustAcquire(t, l)
		flush()
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend: %v", err)
		}
		flush()
		if info, err := l.Inspect(t.Context(), key); err != nil || !info.Held {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		flush()
		mustRelease(t, lease)
	}
}

func TestLocker_documentedRights(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	rights := servers.DocumentedRights(t, "doc.go")
	servers.SetUser(t, server, "locker", []string{"distlock"}, slices.Concat(rights.Needed, rights.Notified)...)
	client := newClient(t, server, redis.Options{Username: "locker", Password: servers.UserPassword})
	l := newLocker(t, client, distlock.Options{})
	lease := mustAcquire(t, l)
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("Extend: %v", err)
	}
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
		t.Errorf("TryAcquire: %v", err)
	}
	if _, err := l.Inspect(t.Context(), key); err != nil {
		t.Errorf("Inspect: %v", err)
	}
	mustRelease(t, lease)
	other := newLocker(t, client, distlock.Options{Namespace: "forbidden"})
	_, err := other.Acquire(t.Context(), key)
	wantKind(t, err, distlock.ErrRefused, "lacks a right")
}

// Lua's own conversion of numbers keeps 14 digits, and a token has 16. miniredis does not show
// this.
func TestFence_S2_hasAllDigits(t *testing.T) {
	d := drivers(onNode(t))(t)
	rounded := 0
	for i := range 20 {
		req := driver.AcquireRequest{Name: driver.Name{Namespace: "n", Key: "k"}, Owner: strings.Repeat("a", 30) + string(rune('a'+i)) + "0", TTL: time.Minute}
		reply, err := d.Acquire(t.Context(), req)
		if err != nil || reply.Outcome != driver.Granted {
			t.Fatalf("Acquire: %+v, %v", reply, err)
		}
		if reply.FenceEnd < reply.Fence {
			t.Errorf("block %d…%d", reply.Fence, reply.FenceEnd)
		}
		if reply.Fence%100 == 0 {
			rounded++
		}
		if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
			t.Fatal(err)
		}
	}
	if rounded > 5 {
		t.Errorf("%d of 20 tokens end in 00", rounded)
	}
}

// After a record whose token is years ahead of the clock, tokens have all their digits and stay
// below 2^53.
func TestFence_S2_recordFarAheadOfTheClock(t *testing.T) {
	d, client := newDriver(t)
	for last, want := range map[int64]int64{8_000_000_000_020_000: 8_000_000_000_020_001, driver.MaxFence - 1: driver.MaxFence, driver.MaxFence: 0} {
		if err := client.Set(t.Context(), lockKey, record("r", "b", last), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		req := owner("a")
		reply, err := d.Acquire(t.Context(), req)
		if want > 0 && (err != nil || reply.Fence != want) || want == 0 && !errors.Is(err, driver.ErrRefused) {
			t.Errorf("after the block up to %d: %+v, %v; want %d", last, reply, err, want)
		}
		if _, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFence_S2_emptyRestart_rises(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	l := newLocker(t, newClient(t, server), distlock.Options{})
	first := mustAcquire(t, l)
	server.Kill()
	server.Restart()
	second := mustAcquire(t, l)
	if second.Fence() <= first.Fence() {
		t.Errorf("fence %d after %d", second.Fence(), first.Fence())
	}
	if err := first.Release(t.Context()); !errors.Is(err, distlock.ErrLost) {
		t.Errorf("Release of the lost lease: %v, want ErrLost", err)
	}
	mustRelease(t, second)
}

func TestLease_N_cutOffHolder_endsBeforeTTL(t *testing.T) {
	server := servers.StartRedis(t)
	const ttl = time.Second
	client := newClient(t, server)
	renewed := make(chan struct{}, 100)
	l := newLocker(t, client, distlock.Options{TTL: ttl, Observer: onEnd(func(op *distlock.Operation) {
		if op.Scheduled && op.Err == nil {
			renewed <- struct{}{}
		}
	})})
	lease := mustAcquire(t, l)
	<-renewed // the deadline comes from a renewal now
	watcher := newClient(t, server)
	if _, err := watcher.Ping(t.Context()).Result(); err != nil { // connected before the pool is cut
		t.Fatal(err)
	}
	server.Do("CLIENT", "PAUSE", "100000", "WRITE")
	expires := time.UnixMilli(int64(watcher.PExpireTime(t.Context(), "distlock:{"+key+"}:lock").Val() / time.Millisecond))
	expires = expires.Add(-driver.FenceKeep - 20*time.Millisecond) // the record outlives the lock
	watch := leakcheck.NewWatch()
	defer watch.Stop()
	<-lease.Context().Done()
	noticed := time.Now()
	if late := noticed.Sub(expires) - watch.Stalled(expires.Add(-ttl/10), noticed); late >= 0 {
		t.Errorf("noticed %s after the key had expired", late)
	}
	if context.Cause(lease.Context()) != distlock.ErrLost {
		t.Errorf("cause %v", context.Cause(lease.Context()))
	}
	server.Do("CLIENT", "UNPAUSE")
}

// onEnd is an Observer of ends.
type onEnd func(*distlock.Operation)

func (onEnd) Start(ctx context.Context, _ *distlock.Operation) context.Context { return ctx }
func (f onEnd) End(_ context.Context, op *distlock.Operation)                  { f(op) }

func TestLease_N_poolUsedUp_isRenewed(t *testing.T) {
	server := servers.SharedRedis(t)
	// The client waits for a connection four times before it fails, which has to be well before the
	// TTL.
	client := newClient(t, server, redis.Options{PoolSize: 1, PoolTimeout: 20 * time.Millisecond})
	const ttl = 600 * time.Millisecond
	l := newLocker(t, client, distlock.Options{TTL: ttl})
	for tries := 1; ; tries++ { // again if the process stalled
		lease := mustAcquire(t, l)
		stalls := leakcheck.Stalls()
		blocking := make(chan error)
		go func() { blocking <- client.BLPop(context.Background(), 4*ttl, "nothing").Err() }()
		for client.PoolStats().IdleConns > 0 {
			time.Sleep(time.Millisecond) // a poll
		}
		another, err := l.TryAcquire(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, another)
		if err := <-blocking; !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		stalled, err := stalls(), lease.Err()
		if err != nil && stalled > ttl/4 && tries < 10 {
			t.Logf("the process stalled for %s", stalled)
			_ = lease.Release(t.Context())
			continue
		}
		if err != nil {
			t.Errorf("lost after %s: %v", 4*ttl, err)
		}
		mustRelease(t, lease)
		return
	}
}
