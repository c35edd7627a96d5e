package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

// A caller leaves a stalled server when its context ends, whether or not the client keeps
// deadlines.
func TestLocker_L_stalledServer_callersLeave(t *testing.T) {
	for name, punctual := range map[string]bool{"client keeps deadlines": true, "client does not": false} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			client := newClient(t, server, redis.Options{ContextTimeoutEnabled: punctual})
			l := newLocker(t, client, distlock.Options{})
			lease := mustAcquire(t, l)
			for range 5 {
				if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, distlock.ErrNotAcquired) {
					t.Fatal(err)
				}
			}
			server.Pause()
			for call, op := range []func(context.Context) error{
				func(ctx context.Context) error { _, err := l.Acquire(ctx, "another"); return err },
				func(ctx context.Context) error { return lease.Extend(ctx, time.Minute) },
				lease.Release,
			} {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				stop, start := leakcheck.Stalls(), time.Now()
				err := op(ctx)
				late := time.Since(start) - 10*time.Millisecond - stop()
				if !errors.Is(err, context.Canceled) {
					t.Errorf("call %d: %v", call, err)
				}
				if late > 50*time.Millisecond {
					t.Errorf("call %d returned %s late", call, late)
				}
			}
			server.Resume()
			for _, name := range []string{key, "another"} {
				servers.Await(t, 5*time.Second, "a free lock on "+name, func() bool {
					info, err := l.Inspect(t.Context(), name)
					return err == nil && !info.Held
				})
			}
		})
	}
}
