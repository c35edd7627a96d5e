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
	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// setUp returns a database that has the lock's tables, too.
func setUp(t *testing.T) *servers.PostgresDatabase {
	t.Helper()
	database := servers.SharedPostgres(t).NewDatabase(t)
	db, err := pgxpool.New(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := pglock.Migrate(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	return database
}

func instance(t *testing.T, lock, database, ttl string) *recipetest.Process {
	return recipetest.Start(t, "-lock", lock, "-database", database, "-every", "10ms", "-ttl", ttl)
}

// leads waits until an instance leads and has stored a price.
func leads(t *testing.T, p *recipetest.Process, database *servers.PostgresDatabase) (token int) {
	t.Helper()
	text := p.Await("leads with token ")
	token, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	servers.Await(t, 30*time.Second, "the leader stores a price", func() bool {
		stored, err := database.Do("SELECT EXISTS (SELECT FROM price WHERE leader = " + text + ")")
		return err == nil && stored == "t"
	})
	return token
}

// inOrder wants prices of several leaders, and none of an older leader or fetch after a newer one.
func inOrder(t *testing.T, database *servers.PostgresDatabase) {
	t.Helper()
	counts, err := database.Do(`SELECT concat(count(DISTINCT leader) > 1, ' ', count(*) FILTER (WHERE leader < before OR cents < earlier))
		FROM (SELECT leader, cents, lag(leader) OVER ids AS before, lag(cents) OVER ids AS earlier
			FROM price WINDOW ids AS (ORDER BY id)) AS prices`)
	if err != nil || counts != "t 0" {
		t.Errorf("several leaders, prices out of order: %s, %v; want t 0", counts, err)
	}
}

func TestLeader_stops_nextLeads(t *testing.T) {
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			database := setUp(t)
			lock := database.URL()
			if backend == "redis" {
				lock = servers.SharedRedis(t).URL()
			}
			first := instance(t, lock, database.URL(), "2s")
			old := leads(t, first, database)
			second := instance(t, lock, database.URL(), "2s")
			if err := first.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := first.Wait(); err != nil {
				t.Errorf("an instance that resigns ends with %v", err)
			}
			next := leads(t, second, database)
			last := instance(t, lock, database.URL(), "2s")
			if err := second.Kill(); err != nil {
				t.Fatal(err)
			}
			if then := leads(t, last, database); old >= next || next >= then {
				t.Errorf("tokens %d, %d, %d", old, next, then)
			}
			waiter := instance(t, lock, database.URL(), "2s")
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
}

// The lock service loses the lock, and a second instance leads. The database refuses the first one,
// which campaigns again long before its lease would be renewed.
func TestLeader_S2_lostLock_isRefused(t *testing.T) {
	database, redis := setUp(t), servers.SharedRedis(t)
	first := instance(t, redis.URL(), database.URL(), "10m")
	leads(t, first, database)
	if _, err := redis.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	leads(t, instance(t, redis.URL(), database.URL(), "10m"), database)
	first.Await("campaigns again")
	inOrder(t, database)
}

// An older leader that does not know of its loss stores during the first fetch of the next leader. The
// database refuses it, although the next leader has stored nothing.
func TestLeader_S2_firstFetch_refusesOlderLeader(t *testing.T) {
	database, redis := setUp(t), servers.SharedRedis(t)
	db, err := pgxpool.New(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(t.Context(), table); err != nil {
		t.Fatal(err)
	}
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
	err = lead(ctx, db, next, time.Minute, func(ctx context.Context) (int64, error) {
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
	database, redis := setUp(t), servers.SharedRedis(t)
	db, err := pgxpool.New(t.Context(), database.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	fetches := 0
	err = lead(ctx, db, leaseOf(t, redis.URL()), time.Millisecond, func(context.Context) (int64, error) {
		if fetches++; fetches == 3 {
			cancel()
		}
		return 0, distlock.ErrUnavailable
	})
	if fetches != 3 || err != nil {
		t.Errorf("%d fetches, and the error %v; want 3 and nil", fetches, err)
	}
}

func leaseOf(t *testing.T, lock string) *distlock.Lease {
	t.Helper()
	locker, err := lockurl.Open(t.Context(), lock, &distlock.Options{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	lease, err := locker.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
