package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"consumer": child.Role(consume)})
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

type config struct{ Lock, Database string }

// consume is a consumer. Its parent is the queue.
func consume(ctx context.Context, parent *child.Line, c config) error {
	queue, deliver := io.Pipe()
	go func() {
		for e := (Event{}); parent.Receive(&e) == nil; e = (Event{}) {
			_ = json.NewEncoder(deliver).Encode(e)
		}
		_ = deliver.Close()
	}()
	err := run(ctx, c.Lock, c.Database, queue, acks{parent}, book)
	if err == io.EOF {
		return nil
	}
	return err
}

// acks sends each acknowledgement to the queue.
type acks struct{ queue *child.Line }

func (a acks) Write(line []byte) (int, error) {
	return len(line), a.queue.Send(strings.TrimSpace(string(line)))
}

// startConsumer starts a consumer with an empty database.
func startConsumer(t *testing.T, lock string) (consumer *child.Child, db *pgxpool.Pool) {
	t.Helper()
	database := servers.SharedPostgres(t).NewDatabase(t).URL()
	consumer, err := child.StartRole(t.Context(), "consumer", config{lock, database}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := consumer.Close(); err != nil {
			t.Error(err)
		}
	})
	return consumer, recipetest.Pool(t, database)
}

func deliver(t *testing.T, consumer *child.Child, events ...Event) {
	t.Helper()
	for _, e := range events {
		if err := consumer.Send(e); err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, consumer *child.Child, want string) {
	t.Helper()
	var got string
	if err := consumer.ReceiveWithin(30*time.Second, &got); err != nil || got != want {
		t.Fatalf("the consumer sends %q, not %q: %v", got, want, err)
	}
}

// An account stays busy for longer than the wait. The consumer takes the event of another account,
// and later the event that the queue delivers again.
func TestEvents_busyAccount_consumerGoesOn(t *testing.T) {
	lock := servers.SharedRedis(t).URL() + "?ttl=2s&wait=300ms"
	consumer, db := startConsumer(t, lock)
	e1, e2 := Event{"e1", "alice", 10}, Event{"e2", "bob", 100}
	err := recipetest.Locker(t, lock, nil).Do(t.Context(), "account-alice", func(context.Context) error {
		deliver(t, consumer, e1, e2)
		expect(t, consumer, "e2")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, consumer, e1)
	if expect(t, consumer, "e1"); balance(t, db) != 10 {
		t.Errorf("the balance is %d", balance(t, db))
	}
}

func balance(t *testing.T, db *pgxpool.Pool) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT balance FROM account WHERE id = 'alice'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The queue delivers every event to each of three consumers, and twice.
func TestEvents_duplicates_areBookedOnce(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, database string) {
		var queue strings.Builder
		for range 2 {
			for i := range 10 {
				fmt.Fprintf(&queue, `{"ID": "e%d", "Account": "alice", "Amount": %d}`, i, 1<<i)
			}
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := run(t.Context(), lock, database, strings.NewReader(queue.String()), io.Discard, book); err != io.EOF {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := balance(t, recipetest.Pool(t, database)); got != 1<<10-1 {
			t.Errorf("the balance is %b", got)
		}
	})
}

// While a consumer handles an event, the lock service loses the lock, and another consumer handles
// another event of the account. The first consumer's balance is outdated, and the database refuses
// it.
func TestEvents_S2_staleConsumerIsRefused(t *testing.T) {
	redis := servers.SharedRedis(t)
	database := servers.SharedPostgres(t).NewDatabase(t).URL()
	e0 := strings.NewReader(`{"ID": "e0", "Account": "alice", "Amount": 1}`)
	if err := run(t.Context(), redis.URL(), database, e0, io.Discard, book); err != io.EOF {
		t.Fatal(err)
	}
	db, first, second := recipetest.Pool(t, database), recipetest.Locker(t, redis.URL(), nil), recipetest.Locker(t, redis.URL(), nil)
	e1, e2 := Event{"e1", "alice", 10}, Event{"e2", "alice", 100}
	err := process(t.Context(), first, db, e1, func(ctx context.Context, balance int64, e Event) (int64, error) {
		if _, err := redis.Do("FLUSHDB"); err != nil {
			t.Fatal(err)
		}
		// Without its tokens, the lock service may begin a few milliseconds too low: the queue
		// delivers again.
		servers.Await(t, 30*time.Second, "the second consumer books nothing", func() bool {
			return process(context.Background(), second, db, e2, book) == nil
		})
		return book(ctx, balance, e)
	})
	if got := balance(t, db); !errors.Is(err, distlock.ErrLost) || got != 101 {
		t.Errorf("the stale consumer: %v; the balance is %d", err, got)
	}
	// The queue delivers the event again.
	if err := process(t.Context(), second, db, e1, book); err != nil {
		t.Error(err)
	}
	if got := balance(t, db); got != 111 {
		t.Errorf("the balance is %d", got)
	}
}
