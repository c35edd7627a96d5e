package redislock_test

import (
	"cmp"
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
	"github.com/belugalock/belugalock/internal/test/pace"
)

const key = "secret-session-id"

// settings are the options of a Locker that tests set. It logs nothing by default.
type settings struct {
	ttl, wait, renewEvery time.Duration
	holder                string
	observer              distlock.Observer
	log                   io.Writer
}

// newLocker makes a Locker, with at most one set of settings. The test closes it.
func newLocker(tb testing.TB, client redis.UniversalClient, with ...settings) *distlock.Locker {
	tb.Helper()
	set := settings{}
	if len(with) > 0 {
		set = with[0]
	}
	l, err := redislock.New(client, pace.Renew(&distlock.Options{
		TTL: set.ttl, Wait: set.wait, Holder: set.holder, Observer: set.observer,
		Logger: slog.New(slog.NewTextHandler(cmp.Or[io.Writer](set.log, io.Discard), nil)),
	}, set.renewEvery))
	must(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		must(tb, l.Close(ctx))
	})
	return l
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
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
