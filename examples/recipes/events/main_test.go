package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }

func pool(t *testing.T, database string) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func open(t *testing.T, lock string) *distlock.Locker {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), lock, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
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
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			database := testservers.SharedPostgres(t).NewDatabase(t).URL()
			db := pool(t, database)
			lock := database
			if backend == "redis" {
				lock = testservers.SharedRedis(t).URL()
			} else if err := pglock.Migrate(t.Context(), db, nil); err != nil {
				t.Fatal(err)
			}
			var queue strings.Builder
			for range 2 {
				for i := range 10 {
					fmt.Fprintf(&queue, `{"ID": "e%d", "Account": "alice", "Amount": %d}`, i, 1<<i)
				}
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if err := run(t.Context(), lock, database, strings.NewReader(queue.String())); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := balance(t, db); got != 1<<10-1 {
				t.Errorf("the balance is %b", got)
			}
		})
	}
}

// While a consumer handles an event, the lock service loses the lock, and another consumer handles
// another event of the account. The first consumer's balance is outdated, and the database refuses
// it.
func TestEvents_S2_staleConsumerIsRefused(t *testing.T) {
	redis := testservers.SharedRedis(t)
	database := testservers.SharedPostgres(t).NewDatabase(t).URL()
	if err := run(t.Context(), redis.URL(), database, strings.NewReader(`{"ID": "e0", "Account": "alice", "Amount": 1}`)); err != nil {
		t.Fatal(err)
	}
	db, first, second := pool(t, database), open(t, redis.URL()), open(t, redis.URL())
	e1, e2 := Event{"e1", "alice", 10}, Event{"e2", "alice", 100}
	err := process(t.Context(), first, db, e1, func(ctx context.Context, balance int64, e Event) (int64, error) {
		if _, err := redis.Do("FLUSHDB"); err != nil {
			t.Fatal(err)
		}
		// Without its tokens, the lock service may begin a few milliseconds too low: the queue
		// delivers again.
		testservers.Await(t, 30*time.Second, "the second consumer books nothing", func() bool {
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
