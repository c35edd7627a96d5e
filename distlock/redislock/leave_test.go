package redislock_test

import (
	"context"
	"errors"
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
	for how, leaver := range map[string]func() (context.Context, context.CancelFunc){
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 100*time.Millisecond)
		},
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		server := servers.SharedRedis(t)
		proxy := faultnet.New(t, server.Addr())
		l := newLocker(t, newClient(t, proxy, redis.Options{DB: server.DB(), MaxRetries: 100, ContextTimeoutEnabled: true}))
		lease := mustAcquire(t, l)
		dropped := proxy.DropReplies(faultnet.Containing(key))
		for operation, call := range map[string]func(context.Context) error{
			"Inspect": func(ctx context.Context) error {
				_, err := l.Inspect(ctx, key)
				return err
			},
			"Release": lease.Release,
		} {
			ctx, cancel := leaver()
			if err := call(ctx); err == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, distlock.ErrUnavailable) {
				t.Errorf("%s, %s: %v, want the error of the ctx", operation, how, err)
			}
			cancel()
		}
		dropped.Stop()
	}
}
