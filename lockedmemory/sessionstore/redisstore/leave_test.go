package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// Each method of the driver returns when its ctx ends, even if no server answers and go-redis has
// never connected.
func TestDriver_L_returnsWithItsContext(t *testing.T) {
	cluster := servers.SharedTopology("cluster").Addrs()
	for topology, options := range map[string]redis.UniversalOptions{
		"node":    {Addrs: []string{servers.SharedServer().Addr()}},
		"cluster": {Addrs: cluster},
	} {
		for _, connected := range []bool{true, false} {
			network := faultnet.NewNet(t)
			options.Dialer, options.ReadTimeout, options.MaxRetries = network.Dial, time.Second, -1
			client := redis.NewUniversalClient(&options)
			d, err := redisstore.NewDriver(client, &storedriver.Retention{Namespace: "session", IdleTTL: time.Hour})
			must(t, err)
			locker, err := memlock.New(nil)
			must(t, err)
			lease, err := locker.Acquire(t.Context(), "s")
			must(t, err)
			access := storedriver.Access{Session: t.Name(), Lease: lease, Fence: lease.Fence(), FirstAccess: true}
			if connected {
				_, err := d.Read(t.Context(), storedriver.Read{Access: access, Limit: 1})
				must(t, err)
			}
			network.Cut()
			write := storedriver.Write{Access: access, N: 1, Op: strings.Repeat("0", 32)}
			inTurn := write
			inTurn.FirstAccess = false
			content := storedriver.Content{Messages: [][]byte{[]byte("m")}}
			for method, call := range map[string]func(context.Context) error{
				"Append, first": func(ctx context.Context) error {
					_, err := d.Append(ctx, storedriver.Append{Write: write, Content: content})
					return err
				},
				"Append, in a turn": func(ctx context.Context) error {
					_, err := d.Append(ctx, storedriver.Append{Write: inTurn, Content: content})
					return err
				},
				"Clear": func(ctx context.Context) error {
					_, err := d.Clear(ctx, storedriver.Clear{Write: write})
					return err
				},
				"Read, first": func(ctx context.Context) error {
					_, err := d.Read(ctx, storedriver.Read{Access: access, Limit: 1})
					return err
				},
				"Sessions": func(ctx context.Context) error {
					_, _, err := d.Sessions(ctx, "")
					return err
				},
				"Ping": func(ctx context.Context) error {
					_, err := d.Ping(ctx)
					return err
				},
				"Read": func(ctx context.Context) error {
					_, err := d.Read(ctx, storedriver.Read{Access: storedriver.Access{Session: t.Name()}, Limit: 1})
					return err
				},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(20*time.Millisecond, cancel)
				stop, start := leakcheck.Stalls(), time.Now()
				err := call(ctx)
				late := time.Since(start) - 20*time.Millisecond - stop()
				if !errors.Is(err, context.Canceled) || late > 200*time.Millisecond {
					t.Errorf("%s, connected %t: %s: %v, %s late", topology, connected, method, err, late)
				}
			}
			network.Heal()
			must(t, errors.Join(locker.Close(t.Context()), client.Close()))
		}
	}
}
