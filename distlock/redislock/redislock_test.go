package redislock_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/redislock"
)

const key = "secret-session-id"

// options sets an option of a Locker. No other test of the package names the field.
type options func(*distlock.Options)

func ttl(d time.Duration) options { return func(o *distlock.Options) { o.TTL = d } }

func forever(o *distlock.Options) { o.Wait = -1 }

func renewEvery(d time.Duration) options { return func(o *distlock.Options) { o.RenewEvery = d } }

func heldBy(holder string) options { return func(o *distlock.Options) { o.Holder = holder } }

func seenBy(o distlock.Observer) options { return func(opts *distlock.Options) { opts.Observer = o } }

func logTo(w io.Writer) options {
	return func(o *distlock.Options) { o.Logger = slog.New(slog.NewTextHandler(w, nil)) }
}

// newLocker makes a Locker that the test closes. It logs nothing by default.
func newLocker(tb testing.TB, client redis.UniversalClient, with ...options) *distlock.Locker {
	tb.Helper()
	opts := distlock.Options{Logger: slog.New(slog.DiscardHandler)}
	for _, set := range with {
		set(&opts)
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
	_, err := redislock.ParseURL("redis://u:12/s3cret@h")
	if !errors.Is(err, distlock.ErrInvalidOption) || !strings.Contains(err.Error(), "lock URL: it cannot be parsed") {
		t.Errorf("%v, want ErrInvalidOption of a lock URL", err)
	}
}

// After a record whose token is years ahead of the clock, tokens have all their digits and stay
// below 2^53.
func TestFence_S2_recordFarAheadOfTheClock(t *testing.T) {
	d, client := newDriver(t)
	for last, want := range map[int64]int64{8_000_000_000_020_000: 8_000_000_000_020_001, driver.MaxFence - 1: driver.MaxFence, driver.MaxFence: 0} {
		must(t, client.Set(t.Context(), lockKey, record("r", "b", last), time.Hour).Err())
		reply, err := d.Acquire(t.Context(), owner("a"))
		if want > 0 && (err != nil || reply.Fence != want) || want == 0 && !errors.Is(err, driver.ErrRefused) {
			t.Errorf("after the block up to %d: %+v, %v; want %d", last, reply, err, want)
		}
		must(t, call(t.Context(), d, "release", "k", "a"))
	}
}
