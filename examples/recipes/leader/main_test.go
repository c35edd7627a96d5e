package main

import (
	"context"
	"errors"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

func instance(t *testing.T, lock, database, ttl string) *recipetest.Process {
	return recipetest.Start(t, "-lock", lock, "-database", database, "-every", "10ms", "-ttl", ttl)
}

// leads waits until an instance leads and has stored a price.
func leads(t *testing.T, p *recipetest.Process, database string) (token int) {
	t.Helper()
	text := p.Await("leads with token ")
	token, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	db := recipetest.Pool(t, database)
	servers.Await(t, 30*time.Second, "the leader stores a price", func() (stored bool) {
		err := db.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM price WHERE leader = $1)", token).Scan(&stored)
		return err == nil && stored
	})
	return token
}

// inOrder wants prices of several leaders, and none of an older leader or fetch after a newer one.
func inOrder(t *testing.T, database string) {
	t.Helper()
	var counts string
	err := recipetest.Pool(t, database).QueryRow(t.Context(), `SELECT concat(count(DISTINCT leader) > 1, ' ',
			count(*) FILTER (WHERE leader < before OR cents < earlier))
		FROM (SELECT leader, cents, lag(leader) OVER ids AS before, lag(cents) OVER ids AS earlier
			FROM price WINDOW ids AS (ORDER BY id)) AS prices`).Scan(&counts)
	if err != nil || counts != "t 0" {
		t.Errorf("several leaders, prices out of order: %s, %v; want t 0", counts, err)
	}
}

func TestLeader_stops_nextLeads(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, database string) {
		first := instance(t, lock, database, "2s")
		old := leads(t, first, database)
		second := instance(t, lock, database, "2s")
		if err := first.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := first.Wait(); err != nil {
			t.Errorf("an instance that resigns ends with %v", err)
		}
		next := leads(t, second, database)
		last := instance(t, lock, database, "2s")
		if err := second.Kill(); err != nil {
			t.Fatal(err)
		}
		if then := leads(t, last, database); old >= next || next >= then {
			t.Errorf("tokens %d, %d, %d", old, next, then)
		}
		waiter := instance(t, lock, database, "2s")
		waiter.Await("campaigns")
		if err := waiter.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := waiter.Wait(); err != nil {
			t.Errorf("an instance that waits ends with %v", err)
		}
		inOrder(t, database)
	})
}

// The lock service loses the lock, and a second instance leads. The database refuses the first one,
// which campaigns again long before its lease would be renewed.
func TestLeader_S2_lostLock_isRefused(t *testing.T) {
	database, redis := servers.SharedPostgres(t).NewDatabase(t).URL(), servers.SharedRedis(t)
	first := instance(t, redis.URL(), database, "10m")
	leads(t, first, database)
	if _, err := redis.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	leads(t, instance(t, redis.URL(), database, "10m"), database)
	first.Await("campaigns again")
	inOrder(t, database)
}

// An older leader that does not know of its loss stores during the first fetch of the next leader. The
// database refuses it, although the next leader has stored nothing.
func TestLeader_S2_firstFetch_refusesOlderLeader(t *testing.T) {
	db, redis := withFence(t), servers.SharedRedis(t)
	old := leaseOf(t, redis.URL())
	if err := store(t.Context(), db, old, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := redis.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	next := leaseOf(t, redis.URL())
	ctx, cancel := context.WithCancel(t.Context())
	fetched := false
	err := lead(ctx, db, next, time.Minute, func(ctx context.Context) (int64, error) {
		defer cancel()
		fetched = true
		if err := store(ctx, db, old, 3); !errors.Is(err, distlock.ErrLost) {
			t.Errorf("the older leader stores: %v, want ErrLost", err)
		}
		return 2, nil
	})
	if !fetched || err != nil { // the end of its context is no failure
		t.Errorf("lead has fetched: %t, and fails with %v", fetched, err)
	}
}

// An update that fails is repeated in the term.
func TestLeader_failedFetch_isRepeated(t *testing.T) {
	db, redis := withFence(t), servers.SharedRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	fetches := 0
	err := lead(ctx, db, leaseOf(t, redis.URL()), time.Millisecond, func(context.Context) (int64, error) {
		if fetches++; fetches == 3 {
			cancel()
		}
		return 0, distlock.ErrUnavailable
	})
	if fetches != 3 || err != nil {
		t.Errorf("%d fetches, and the error %v; want 3 and nil", fetches, err)
	}
}

// withFence opens a database with the tables of the recipe.
func withFence(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := recipetest.Pool(t, servers.SharedPostgres(t).NewDatabase(t).URL())
	_, err := db.Exec(t.Context(), table)
	if err := errors.Join(err, pglock.MigrateFence(t.Context(), db, nil)); err != nil {
		t.Fatal(err)
	}
	return db
}

func leaseOf(t *testing.T, lock string) *distlock.Lease {
	t.Helper()
	lease, err := recipetest.Locker(t, lock, &distlock.Options{TTL: 10 * time.Minute}).Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
