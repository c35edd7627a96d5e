package main

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(servers.Sharing{M: m}) }

func acquire(t *testing.T, lock string) *distlock.Lease {
	t.Helper()
	lease, err := recipetest.Locker(t, lock, nil).Acquire(t.Context(), "product-1")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// acquireAfter lets the lock service lose the lock and acquires it for a second instance.
func acquireAfter(t *testing.T, redis *servers.Database, older *distlock.Lease) (newer *distlock.Lease) {
	t.Helper()
	// Without its tokens, the lock service may begin a few milliseconds too low.
	for newer == nil || newer.Fence() <= older.Fence() {
		if _, err := redis.Do("FLUSHDB"); err != nil {
			t.Fatal(err)
		}
		newer = acquire(t, redis.URL())
	}
	return newer
}

// setUp returns a lock service and a database with a product whose price is 110.
func setUp(t *testing.T) (*servers.Database, *pgxpool.Pool) {
	t.Helper()
	redis, database := servers.SharedRedis(t), servers.SharedPostgres(t).NewDatabase(t)
	if err := run(t.Context(), redis.URL(), database.URL()); err != nil {
		t.Fatal(err)
	}
	return redis, recipetest.Pool(t, database.URL())
}

func wantPrice(t *testing.T, db *pgxpool.Pool, want int64) {
	t.Helper()
	var price int64
	if err := db.QueryRow(t.Context(), `SELECT price FROM product`).Scan(&price); err != nil || price != want {
		t.Errorf("the price is %d instead of %d, %v", price, want, err)
	}
}

// While the first holder decides, the lock service loses the lock, and a second instance gets it.
// The second one does the whole change, or has only read the price. The context of the first one
// has not ended, and its write is the last to reach the database, which refuses it.
func TestUpdate_S2_staleWriterIsRefused(t *testing.T) {
	for name, reads := range map[string]bool{"afterTheNextHasWritten": false, "afterTheNextHasRead": true} {
		t.Run(name, func(t *testing.T) {
			redis, db := setUp(t)
			var first, second error
			older := acquire(t, redis.URL())
			first = update(t.Context(), db, older, 1, func(context.Context, int64) (int64, error) {
				newer := acquireAfter(t, redis, older)
				second = update(t.Context(), db, newer, 1, func(context.Context, int64) (int64, error) {
					if reads {
						return 0, errors.New("it only reads")
					}
					return 500, nil
				})
				return 7, nil
			})
			if !errors.Is(first, distlock.ErrLost) || (second != nil) != reads {
				t.Errorf("the older holder: %v; the newer one: %v", first, second)
			}
			want := int64(500)
			if reads {
				want = 110
			}
			wantPrice(t, db, want)
		})
	}
}

// The older holder comes to the database after the newer one, and may not even read.
func TestUpdate_S2_staleReaderIsRefused(t *testing.T) {
	redis, db := setUp(t)
	older := acquire(t, redis.URL())
	newer := acquireAfter(t, redis, older)
	err := update(t.Context(), db, newer, 1, func(context.Context, int64) (int64, error) { return 500, nil })
	if err != nil {
		t.Fatal(err)
	}
	err = update(t.Context(), db, older, 1, func(context.Context, int64) (int64, error) {
		t.Error("the older holder has read the price")
		return 7, nil
	})
	if !errors.Is(err, distlock.ErrLost) {
		t.Errorf("the older holder: %v", err)
	}
	wantPrice(t, db, 500)
}
