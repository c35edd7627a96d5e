package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// What one request makes Redis do. Scenario history of package bench measures how long that takes.

// fill adds exchanges of a size to a log, each in a turn of its own, from token 1 on.
func (r *rig) fill(t *testing.T, exchanges, size int) {
	t.Helper()
	text := strconv.Quote(strings.Repeat("x", size))
	pipe := r.client.Pipeline()
	for n := range exchanges {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: r.log(), ID: fmt.Sprintf("%d-1000000", n+1),
			Values: []any{"op", strings.Repeat("0", 32), "m", text}})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}

// A first access trims 100 exchanges or 1 MiB at most, and the rest of a turn.
func TestTrim_longLog_partByPart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep            sessionstore.Retention
		exchanges, size int
		want            []int64 // entries after each access; one is its marker
	}{
		"small":       {sessionstore.Retention{MaxExchanges: 3}, 250, 10, []int64{151, 51, 4, 4}},
		"large":       {sessionstore.Retention{MaxExchanges: 3}, 12, 300 << 10, []int64{9, 5, 4, 4}},
		"old":         {sessionstore.Retention{MaxAge: time.Hour}, 250, 10, []int64{151, 51, 2, 2}},
		"large, aged": {sessionstore.Retention{MaxAge: time.Hour}, 12, 300 << 10, []int64{9, 5, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redis.Options{}, nil, &c.keep)
			r.fill(t, c.exchanges, c.size)
			var got []int64
			for range c.want {
				must(t, r.memory.Turn(t.Context(), r.opens))
				got = append(got, r.client.XLen(t.Context(), r.log()).Val())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v entries, want %v", got, c.want)
			}
		})
	}
}

// A first access with nothing to trim does not read many exchanges into the memory of the script.
func TestTrim_nothingToTrim_readsLittle(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	r := newRig(t, redis.Options{Addr: server.Addr()}, nil, &sessionstore.Retention{MaxAge: time.Hour})
	script := func() (n int) {
		info := r.client.Info(t.Context(), "memory").Val()
		_, after, _ := strings.Cut(info, "\nused_memory_lua:")
		_, err := fmt.Sscan(after, &n)
		must(t, err)
		return n
	}
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		for n := range 110 { // Lua keeps equal texts once
			must(t, r.store.Save(ctx, strings.Repeat(fmt.Sprint(n, " "), 20<<10), ""))
		}
		return nil
	}))
	before := script()
	must(t, r.memory.Save(t.Context(), "q", "a"))
	if more := script() - before; more > 2<<20 {
		t.Errorf("the script needs %d bytes, of exchanges that stay", more)
	}
}
