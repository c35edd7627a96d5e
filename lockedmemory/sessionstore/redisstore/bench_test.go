package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/redisstore"
)

type message struct{ Role, Text string }

var (
	question = message{"user", strings.Repeat("Where is my parcel? ", 9)}
	answer   = message{"assistant", strings.Repeat("It comes on Tuesday. ", 13)}
)

// newMemory returns a memory of one session, with lock and store over one client.
func newMemory(b *testing.B) *lockedmemory.LockedMemory[message, message] {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
	b.Cleanup(func() { _ = client.Close() })
	locker, err := redislock.New(client, &distlock.Options{Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	b.Cleanup(func() { _ = locker.Close(context.Background()) })
	key := lockedmemory.FixedKey("session")
	store, err := redisstore.New(client, key, sessionstore.JSON[message]{}, nil, nil)
	must(b, err)
	m, err := lockedmemory.New(store, locker, key, nil)
	must(b, err)
	return m
}

// inTurn runs f within a turn in which the store has been shown the token.
func inTurn(b *testing.B, m *lockedmemory.LockedMemory[message, message], f func(ctx context.Context)) {
	b.Helper()
	err := m.Turn(context.Background(), func(ctx context.Context) error {
		if err := m.Save(ctx, question, answer); err != nil {
			return err
		}
		f(ctx)
		return nil
	})
	must(b, err)
}

func save(ctx context.Context, b *testing.B, m *lockedmemory.LockedMemory[message, message]) {
	must(b, m.Save(ctx, question, answer))
}

// The client's part of the store: its allocations and, with -cpuprofile, its time. Package bench
// compares it with bare commands.

func BenchmarkSave(b *testing.B) {
	m := newMemory(b)
	save(context.Background(), b, m)
	b.ReportAllocs()
	for b.Loop() {
		save(context.Background(), b, m)
	}
}

func BenchmarkTurnSave(b *testing.B) {
	m := newMemory(b)
	inTurn(b, m, func(ctx context.Context) {
		b.ReportAllocs()
		for b.Loop() {
			save(ctx, b, m)
		}
	})
}

func BenchmarkTurnSaveID(b *testing.B) {
	m := newMemory(b)
	inTurn(b, m, func(ctx context.Context) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			must(b, m.SaveOnce(ctx, "message-"+strconv.Itoa(n), question, answer))
		}
	})
}

func BenchmarkLoad1000(b *testing.B) {
	m := newMemory(b)
	inTurn(b, m, func(ctx context.Context) {
		for range 999 {
			save(ctx, b, m)
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		if messages, err := m.Load(context.Background(), ""); err != nil || len(messages) != 2000 {
			b.Fatal(len(messages), err)
		}
	}
}

// BenchmarkReplaceStep prints for how long Redis runs a step of a Replace, on average. A step blocks Redis.
func BenchmarkReplaceStep(b *testing.B) {
	for name, c := range map[string]struct{ exchanges, messages, size int }{
		"50_of_1KB": {1000, 2, 500}, "4_of_256_messages": {200, 256, 2}, "1_of_1MB": {20, 2, 500_000}, "1_of_8MB": {5, 2, 4_000_000},
	} {
		b.Run(name, func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
			r := newRigOver(b, client, nil, nil)
			var with []lockedmemory.Exchange[string]
			for n := range c.exchanges {
				text := strings.Repeat(strconv.Itoa(n)+" ", c.size)[:c.size] // scripts keep equal texts once
				with = append(with, lockedmemory.Exchange[string]{Messages: slices.Repeat([]string{text}, c.messages)})
			}
			must(b, r.memory.Save(b.Context(), "q", "a"))
			scripts := func() (calls, micros float64) {
				_, after, _ := strings.Cut(client.Info(b.Context(), "commandstats").Val(), "\ncmdstat_evalsha:")
				_, err := fmt.Sscanf(after, "calls=%g,usec=%g", &calls, &micros)
				must(b, err)
				return calls, micros
			}
			must(b, r.memory.Turn(b.Context(), func(ctx context.Context) error {
				last, err := r.store.Last(ctx, 1)
				must(b, err)
				must(b, r.store.Replace(ctx, last[0].Place, last[0].Place, with...))
				calls, micros := scripts()
				for b.Loop() {
					last, err = r.store.Last(ctx, math.MaxInt)
					must(b, err)
					must(b, r.store.Replace(ctx, last[0].Place, last[0].Place, last[0]))
				}
				calls2, micros2 := scripts()
				b.ReportMetric((micros2-micros)/(calls2-calls)/1000, "ms/step")
				return nil
			}))
		})
	}
}
