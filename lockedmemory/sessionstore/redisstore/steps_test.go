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

	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// What one request makes Redis do.

// fill adds exchanges to a log, each in a turn of its own, from token 1 on.
func (r *rig) fill(t *testing.T, exchanges int, messages ...string) {
	t.Helper()
	values := []any{"op", strings.Repeat("0", 32)}
	for _, m := range messages {
		values = append(values, "m", strconv.Quote(m))
	}
	pipe := r.client.Pipeline()
	for n := range exchanges {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: r.log(), ID: fmt.Sprintf("%d-1000000", n+1), Values: values})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}

// A step copies small entries by few commands. Of large ones it reads each alone: a reply of many would block
// Redis for the time of all their bytes.
func TestReplace_copy_readsSmallTogether(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000")
	r := newRig(t, server)
	for name, c := range map[string]struct {
		exchanges, size int
		together        string
		reads           int
	}{
		"small": {200, 10, "4", 60},
		"large": {12, 30 << 10, "1", 18},
	} {
		r.client.Del(t.Context(), r.log(), r.mark())
		r.fill(t, c.exchanges, strings.Repeat("x", c.size))
		all := r.places(t)
		must(t, r.client.Do(t.Context(), "slowlog", "reset").Err())
		must(t, r.memory.Replace(t.Context(), all[len(all)-1], all[len(all)-1]))
		together, reads := "", 0
		for _, e := range r.client.SlowLogGet(t.Context(), -1).Val() {
			if a := e.Args; a[0] == "XRANGE" && a[1] == r.log() && len(a) == 6 && strings.HasPrefix(a[2], "(") {
				together, reads = max(together, a[5]), reads+1
			}
		}
		if together != c.together || reads > c.reads {
			t.Errorf("%s: at most %s entries in one of %d reads, want %s in %d", name, together, reads, c.together, c.reads)
		}
	}
}

// No step of a Replace copies or adds more than 50 exchanges, or 64 KB and an exchange. Each word of an
// entry counts 32 bytes more.
func TestReplace_step_atMost50Entries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exchanges int
		messages  []string
		most      int // exchanges of a step
	}{
		"small":         {220, []string{"q", "a"}, 50},
		"large":         {20, []string{strings.Repeat("x", 30<<10)}, 3},
		"many messages": {20, slices.Repeat([]string{"xx"}, 256), 4},
	} {
		server := servers.StartRedis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "10000")
		r := newRig(t, server)
		r.fill(t, c.exchanges, c.messages...)
		all := r.places(t)
		with := slices.Repeat([]lockedmemory.Exchange[string]{exchange(c.messages...)}, c.exchanges)
		must(t, r.memory.Replace(t.Context(), all[0], all[len(all)-1], with...))
		must(t, r.memory.Replace(t.Context(), r.places(t)[0], r.places(t)[0], with[0]))
		var steps []int // entries that each has staged; the SLOWLOG has a script after its commands
		n := 0
		for _, e := range slices.Backward(r.client.SlowLogGet(t.Context(), -1).Val()) {
			switch {
			case e.Args[0] == "XADD" && e.Args[1] == r.stage():
				n++
			case strings.HasPrefix(e.Args[0], "eval"):
				steps, n = append(steps, n), 0
			}
		}
		if slices.Max(steps) != c.most || len(steps) < 2*c.exchanges/c.most {
			t.Errorf("%s: %d exchanges in a step, want %d; %v", name, slices.Max(steps), c.most, steps)
		}
	}
}

// Redis does not stop to free long keys that were removed: the log, the turn IDs, and a staging.
func TestRemovedKeys_freedInBackground(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	r := newRig(t, server)
	ids := "session:{" + r.key + "}:ids"
	freed := func() (n int) {
		info := r.client.Info(t.Context(), "memory").Val()
		_, after, _ := strings.Cut(info, "\nlazyfreed_objects:")
		_, err := fmt.Sscan(after, &n)
		must(t, err)
		return n
	}
	replace := func(ctx context.Context) error {
		at := lockedmemory.Place{Fence: 7, N: 1}
		return r.store.Replace(ctx, at, at)
	}
	for name, c := range map[string]struct {
		call func(ctx context.Context) error
		want int // keys
	}{
		"Clear":   {r.memory.Clear, 2},
		"Delete":  {r.memory.Delete, 3},
		"Replace": {replace, 2},
	} {
		r.client.Del(t.Context(), r.log(), r.mark())
		r.fill(t, 1000, strings.Repeat("x", 500))
		must(t, r.client.Copy(t.Context(), r.log(), r.stage(), 0, true).Err())
		for n := range 1000 {
			must(t, r.client.HSet(t.Context(), ids, fmt.Sprint(n), "").Err())
		}
		before := freed()
		must(t, r.memory.Turn(t.Context(), c.call))
		servers.Await(t, 5*time.Second, fmt.Sprintf("%s: %d keys freed in the background", name, c.want),
			func() bool { return freed() == before+c.want })
	}
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
			r := newRig(t, &c.keep)
			r.fill(t, c.exchanges, strings.Repeat("x", c.size))
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
	server := servers.StartRedis(t)
	r := newRig(t, server, &sessionstore.Retention{MaxAge: time.Hour})
	script := func() (n int) {
		info := r.client.Info(t.Context(), "memory").Val()
		_, after, _ := strings.Cut(info, "\nused_memory_lua:")
		_, err := fmt.Sscan(after, &n)
		must(t, err)
		return n
	}
	r.turn(t, func(ctx context.Context) {
		for n := range 110 { // Lua keeps equal texts once
			must(t, r.store.Save(ctx, strings.Repeat(fmt.Sprint(n, " "), 20<<10), ""))
		}
	})
	before := script()
	must(t, r.memory.Save(t.Context(), "q", "a"))
	if more := script() - before; more > 2<<20 {
		t.Errorf("the script needs %d bytes, of exchanges that stay", more)
	}
}
