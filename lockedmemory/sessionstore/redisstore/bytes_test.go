package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	lockdriver "github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
)

// memoryOf returns all bytes of the log: Redis adds up each node of the Stream.
func (r *rig) memoryOf(t *testing.T) int {
	t.Helper()
	n, err := r.client.MemoryUsage(t.Context(), r.log(), 0).Result()
	must(t, err)
	return int(n)
}

// turns returns how many turns the log has, and the place of its first exchange.
func (r *rig) turns(t *testing.T) (n int, first string) {
	t.Helper()
	tokens := make(map[string]bool)
	for _, e := range r.client.XRange(t.Context(), r.log(), "-", "+").Val() {
		if _, marker := e.Values["mark"]; !marker {
			token, _, _ := strings.Cut(e.ID, "-")
			tokens[token] = true
			first = cmp.Or(first, e.ID)
		}
	}
	return len(tokens), first
}

// After the first access of a lease, a log of exchanges of any size has at most MaxBytes and 8 KB, by the
// bytes that Redis counts, or its newest turn alone. It has not less than MaxBytes without 8 KB and a turn.
func TestTrim_maxBytes_memoryOfLog(t *testing.T) {
	t.Parallel()
	const slack = 8 << 10
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{64 << 10, 300_000} {
		r := newRig(t, redis.Options{}, nil, &sessionstore.Retention{MaxBytes: most})
		must(t, r.memory.Clear(t.Context()))
		largest, trims := 0, 0
		for range 120 {
			_, before := r.turns(t)
			must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
				must(t, r.opens(ctx))
				turns, first := r.turns(t)
				if turns > 0 {
					used := r.memoryOf(t)
					if used > most+slack && turns > 1 {
						t.Errorf("MaxBytes %d: the log has %d bytes, and %d turns", most, used, turns)
					}
					if first != before {
						trims++
						if used < most-largest-slack {
							t.Errorf("MaxBytes %d: only %d bytes stay, and no turn had more than %d", most, used, largest)
						}
					}
				}
				size := 0
				for range 1 + random.IntN(3) {
					q, a := 1+random.IntN(100), 1+random.IntN([]int{10, 500, 3000, 20_000}[random.IntN(4)])
					size += q + a + 200
					must(t, r.memory.Save(ctx, strings.Repeat("q", q), strings.Repeat("a", a)))
				}
				largest = max(largest, size)
				return nil
			}))
		}
		if trims < 10 {
			t.Errorf("MaxBytes %d: trimmed %d times", most, trims)
		}
	}
}

// Small exchanges at the beginning of a log do not hide large ones after them.
func TestTrim_maxBytes_smallBeforeLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, redis.Options{}, nil, &sessionstore.Retention{MaxBytes: 1 << 20})
	for n := range 1000 {
		must(t, r.memory.Save(t.Context(), "small", strings.Repeat("a", []int{300, 20_000}[n/920])))
	}
	if used := r.memoryOf(t); used > 1<<20+32<<10 { // the last Save, and a node
		t.Errorf("the log has %d bytes", used)
	}
}

// Without the right to MEMORY USAGE, a call that has to know the size is refused, and writes nothing.
func TestSave_C_maxBytesWithoutRight_refused(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	ofStore, ofLock := testservers.DocumentedRights(t, "doc.go"), testservers.DocumentedRights(t, docOfLock)
	rights := append(ofStore.Without("+memory|usage").Needed, ofLock.Needed...)
	testservers.SetUser(t, server, "store", []string{"session", "distlock"}, rights...)
	r := newRig(t, redis.Options{Addr: server.Addr(), Username: "store", Password: testservers.UserPassword}, nil,
		&sessionstore.Retention{MaxBytes: 64 << 10})
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		return errors.Join(r.memory.Save(ctx, "q", "a"), r.memory.Save(ctx, "q2", "a2"))
	}))
	load := func(ctx context.Context) error { return r.opens(ctx) }
	for name, err := range map[string]error{
		"Save":  r.memory.Save(t.Context(), "q3", "a3"),
		"Load":  r.memory.Turn(t.Context(), load),
		"Clear": r.memory.Clear(t.Context()),
	} {
		if !errors.Is(err, distlock.ErrRefused) || !errors.Is(err, lockdriver.ErrRights) || errors.Is(err, distlock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := r.history(t); strings.Join(got, " ") != "q a q2 a2" {
		t.Errorf("the history is %q", got)
	}
}

// With MaxBytes, a Save after the first access of its lease is still one XADD, and asks for no size.
func TestSave_maxBytes_inTurn_bareXADD(t *testing.T) {
	t.Parallel()
	server := testservers.StartRedis(t)
	r := newRig(t, redis.Options{Addr: server.Addr()}, &distlock.Options{RenewEvery: -1}, &sessionstore.Retention{MaxBytes: 64 << 10})
	must(t, r.memory.Save(t.Context(), "q", "a"))
	must(t, r.memory.Turn(t.Context(), func(ctx context.Context) error {
		must(t, r.opens(ctx))
		must(t, r.client.ConfigResetStat(ctx).Err())
		for range 10 {
			must(t, r.memory.Save(ctx, "q", "a"))
		}
		stats := r.client.Info(ctx, "commandstats").Val()
		if !strings.Contains(stats, "cmdstat_xadd:calls=10,") || strings.Contains(stats, "cmdstat_eval") || strings.Contains(stats, "cmdstat_memory") {
			t.Errorf("10 Saves are %s", stats)
		}
		return nil
	}))
}
