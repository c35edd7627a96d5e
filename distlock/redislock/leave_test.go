package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
					if reply, err := d.Acquire(t.Context(), leaving(t.Name())); err != nil || reply.Outcome != driver.Granted {
						t.Fatalf("Acquire: %+v, %v", reply, err)
					}
				}
				network.Cut()
				defer network.Heal()
				methods := methodsOf(d, leaving(t.Name()))
				if topology != "another type" { // it refuses lists
					methods["List"] = func(ctx context.Context) error {
						_, err := d.(driver.Lister).List(ctx, driver.ListRequest{Namespace: "n", Limit: 1})
						return err
					}
				}
				for method, call := range methods {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(20*time.Millisecond, cancel)
					stop, start := leakcheck.Stalls(), time.Now()
					err := call(ctx)
					late := time.Since(start) - 20*time.Millisecond - stop()
					if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrTemporary) || late > 200*time.Millisecond {
						t.Fatalf("%s: %v, %s late", method, err, late)
					}
				}
			})
		}
	}
}

func leaving(key string) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: driver.Name{Namespace: "n", Key: key}, Owner: strings.Repeat("0", 32), TTL: time.Minute, Holder: "test",
	}
}

func methodsOf(d driver.Driver, req driver.AcquireRequest) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, req)
			return err
		},
		"Raise": func(ctx context.Context) error {
			_, err := d.Raise(ctx, driver.RaiseRequest{Name: req.Name, Owner: req.Owner, Floor: 1})
			return err
		},
		"Extend": func(ctx context.Context) error {
			return d.Extend(ctx, []driver.ExtendRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})[0].Err
		},
		"Release": func(ctx context.Context) error {
			_, err := d.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		},
		"Release with a tombstone": func(ctx context.Context) error {
			_, err := d.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Tombstone: time.Minute})
			return err
		},
		"Inspect": func(ctx context.Context) error {
			_, err := d.Inspect(ctx, req.Name)
			return err
		},
	}
}
