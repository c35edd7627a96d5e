package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A short pause of the server fails no call, even if the client never retries. Its outcomes are known, so a
// release leaves no tombstone.
func TestLocker_pauseWithoutRetries_noFailure(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := newClient(t, server, redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1})
	l := newLocker(t, client)
	pause := func() { do(t, server, "CLIENT", "PAUSE", "40", "ALL") }
	for range 10 {
		for range 5 {
			must(t, l.Do(t.Context(), "warm", func(context.Context) error { return nil }))
		}
		pause()
		lease := mustAcquire(t, l)
		pause()
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
			t.Errorf("TryAcquire: %v", err)
		}
		pause()
		mustRelease(t, lease)
	}
	if marks := do(t, server, "KEYS", "*:tombstones"); marks != "" {
		t.Errorf("tombstones: %q", marks)
	}
}

// A reply reports whether its request was sent more than once.
func TestDriver_S1_reportsReplays(t *testing.T) {
	d, network := interrupted(t, onNode(t))
	for i, again := range []bool{false, true, false, true} {
		lose := func() {
			if again {
				network.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
			}
		}
		req := driver.AcquireRequest{
			Name: driver.Name{Namespace: t.Name(), Key: "k"}, Owner: fmt.Sprintf("%032x", i), TTL: time.Minute, Holder: "test",
			Seq: int64(i - 1), // the last needs the full script alone
		}
		lose()
		grant, err := d.Acquire(t.Context(), req)
		if err != nil || grant.Outcome != driver.Granted || grant.Replayed != again {
			t.Errorf("round %d: Acquire: %+v, %v", i, grant, err)
		}
		lose()
		reply, err := d.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err != nil || !reply.Released || reply.Replayed != again {
			t.Errorf("round %d: Release: %+v, %v", i, reply, err)
		}
	}
}

// interrupted makes a driver whose network can fail.
func interrupted(t *testing.T, options redis.UniversalOptions) (driver.Driver, *faultnet.Net) {
	network := faultnet.NewNet(t)
	options.Dialer = network.Dial
	return pooled(options).New(t), network
}

// An extend whose answer is lost fails and is not sent again: its caller repeats it.
func TestDriver_N_extend_isSentOnce_overTheClient(t *testing.T) {
	network, options := faultnet.NewNet(t), onNode(t)
	options.Dialer = network.Dial
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	for _, d := range []driver.Driver{driverOver(t, client), driverOver(t, struct{ redis.UniversalClient }{client})} {
		mustGrant(t, d, owner("a"))
		extend := []driver.ExtendRequest{{Name: owner("a").Name, Owner: owner("a").Owner, TTL: time.Minute}}
		for _, lost := range []bool{false, true, false} {
			if lost {
				network.DropReplies(faultnet.First(1, faultnet.Containing("evalsha")))
			}
			if reply := d.Extend(t.Context(), extend)[0]; (reply.Err != nil) != lost || reply.Held == lost {
				t.Errorf("with the answer lost (%t): %+v", lost, reply)
			}
		}
	}
}

// Each method of the driver returns when its ctx ends, even if no server answers and go-redis has
// never connected.
func TestDriver_L_returnsWithItsContext(t *testing.T) {
	db := servers.SharedRedis(t)
	node := redis.UniversalOptions{Addrs: []string{db.Addr()}, DB: db.DB()}
	anotherType := func(options *redis.UniversalOptions) redis.UniversalClient {
		return struct{ redis.UniversalClient }{redis.NewUniversalClient(options)}
	}
	for topology, c := range map[string]struct {
		options redis.UniversalOptions
		connect func(*redis.UniversalOptions) redis.UniversalClient
	}{
		"node":         {node, redis.NewUniversalClient},
		"another type": {node, anotherType},
		"sentinel":     {on("sentinel"), redis.NewUniversalClient},
		"cluster":      {on("cluster"), redis.NewUniversalClient},
	} {
		for state, connected := range map[string]bool{"connected": true, "not connected": false} {
			t.Run(topology+"/"+state, func(t *testing.T) {
				network := faultnet.NewNet(t)
				c.options.Dialer, c.options.ReadTimeout, c.options.MaxRetries = network.Dial, time.Second, -1
				client := c.connect(&c.options)
				t.Cleanup(func() { _ = client.Close() })
				d := driverOver(t, client)
				if connected {
					must(t, call(t.Context(), d, "acquire", "leave", "a"))
				}
				network.Cut()
				defer network.Heal()
				calls := "acquire raise extend release cancel inspect list"
				if topology == "another type" { // it refuses lists
					calls = strings.TrimSuffix(calls, " list")
				}
				for _, method := range strings.Fields(calls) {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(20*time.Millisecond, cancel)
					stop, start := leakcheck.Stalls(), time.Now()
					err := call(ctx, d, method, "leave", "a")
					late := time.Since(start) - 20*time.Millisecond - stop()
					if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrTemporary) || late > 200*time.Millisecond {
						t.Fatalf("%s: %v, %s late", method, err, late)
					}
				}
			})
		}
	}
}

// A caller that leaves between two copies of its request gets the error of its ctx, and no outage.
func TestLocker_C_leavesBetweenCopies(t *testing.T) {
	server := servers.SharedRedis(t)
	proxy := faultnet.New(t, server.Addr())
	l := newLocker(t, newClient(t, proxy, redis.Options{DB: server.DB(), MaxRetries: 100, ContextTimeoutEnabled: true}))
	for _, cancels := range []bool{true, false} {
		lease := mustAcquire(t, l)
		dropped := proxy.DropReplies(faultnet.Containing(key))
		for operation, call := range map[string]func(context.Context) error{
			"Inspect": func(ctx context.Context) error {
				_, err := l.Inspect(ctx, key)
				return err
			},
			"Release": lease.Release,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if cancels {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			if err := call(ctx); err == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, distlock.ErrUnavailable) {
				t.Errorf("%s, cancelled %t: %v, want the error of the ctx", operation, cancels, err)
			}
			cancel()
		}
		dropped.Stop()
	}
}
