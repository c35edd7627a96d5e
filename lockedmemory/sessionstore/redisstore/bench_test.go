package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/redislock"
	"github.com/belugalock/belugalock/internal/testservers"
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
	client := redis.NewClient(&redis.Options{Addr: testservers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
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
			save(lockedmemory.WithTurnID(ctx, "message-"+strconv.Itoa(n)), b, m)
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

// BenchmarkReplace1000 replaces one exchange of 1,000 with 1 KB each. It compares that with a bare
// pipeline that writes the same bytes.
func BenchmarkReplace1000(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: testservers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
	r := newRigOver(b, client, nil, nil)
	text := strings.Repeat("x", 1000)
	write := func(log string) {
		pipe := client.Pipeline()
		for n := range 1000 {
			pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: log, ID: strconv.Itoa(1000+n) + "-1000000",
				Values: []any{"op", strings.Repeat("0", 32), "m", strconv.Quote(text)}})
		}
		_, err := pipe.Exec(b.Context())
		must(b, err)
	}
	write(r.log())
	at := lockedmemory.Place{Fence: 1500, N: 1}
	var bare, replaces time.Duration
	must(b, r.memory.Turn(b.Context(), func(ctx context.Context) error {
		for b.Loop() {
			start := time.Now()
			write("bare")
			bare += time.Since(start)
			must(b, client.Unlink(ctx, "bare").Err())
			start = time.Now()
			must(b, r.store.Replace(ctx, at, at, lockedmemory.Exchange[string]{Messages: []string{text}}))
			replaces += time.Since(start)
			last, err := client.XRangeN(ctx, r.log(), at.String(), "+", 1).Result()
			must(b, err)
			if _, err := fmt.Sscanf(last[0].ID, "1500-%d", &at.Sub); err != nil {
				b.Fatal(err)
			}
			at.Sub -= 1_000_000
		}
		return nil
	}))
	b.ReportMetric(float64(replaces)/float64(bare), "replace/pipeline")
}

// BenchmarkLast20 loads the last 20 of 100 and of 100,000 exchanges.
func BenchmarkLast20(b *testing.B) {
	for _, long := range []int{100, 100_000} {
		b.Run(strconv.Itoa(long), func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: testservers.StartRedis(b).Addr(), ContextTimeoutEnabled: true})
			r := newRigOver(b, client, nil, nil)
			for part := range long / 100 {
				pipe := client.Pipeline()
				for n := range 100 {
					pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: r.log(), ID: strconv.Itoa(1+100*part+n) + "-1000000",
						Values: []any{"op", strings.Repeat("0", 32), "m", `"question"`, "m", `"answer"`}})
				}
				_, err := pipe.Exec(b.Context())
				must(b, err)
			}
			for b.Loop() {
				if last, err := r.store.Last(b.Context(), 20); err != nil || len(last) != 20 {
					b.Fatal(len(last), err)
				}
			}
		})
	}
}
