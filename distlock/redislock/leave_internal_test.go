package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
)

// soon is how long leavers stay.
const soon = 100 * time.Millisecond

// leavers make contexts that end soon, by the cause in their name.
var leavers = map[string]func() (context.Context, context.CancelFunc, error){
	"cancelled": func() (context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(soon, cancel)
		return ctx, cancel, context.Canceled
	},
	"deadline": func() (context.Context, context.CancelFunc, error) {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		return ctx, cancel, context.DeadlineExceeded
	},
}

// A caller that leaves between two copies of its request gets the error of its ctx, and no outage.
func TestLocker_C_leavesBetweenCopies(t *testing.T) {
	for how, leaver := range leavers {
		t.Run(how, func(t *testing.T) {
			options, proxy := proxied(t)
			options.MaxRetries = 100
			client := redis.NewUniversalClient(&options)
			defer func() { _ = client.Close() }()
			l, err := New(client, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.Background()) }()
			lease, err := l.Acquire(t.Context(), t.Name())
			if err != nil {
				t.Fatal(err)
			}
			dropped := proxy.DropReplies(faultnet.Containing(t.Name()))
			defer dropped.Stop()
			for operation, call := range map[string]func(context.Context) error{
				"Inspect": func(ctx context.Context) error {
					_, err := l.Inspect(ctx, t.Name())
					return err
				},
				"Release": lease.Release,
			} {
				ctx, cancel, want := leaver()
				if err := call(ctx); !errors.Is(err, want) || errors.Is(err, distlock.ErrUnavailable) {
					t.Errorf("%s: %v, want %v", operation, err, want)
				}
				cancel()
			}
		})
	}
}
