package main

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/recipetest"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { recipetest.Main(m, main) }

// setUp returns a database that has the lock's tables, too.
func setUp(t *testing.T) *testservers.PostgresDatabase {
	t.Helper()
	database := testservers.SharedPostgres(t).NewDatabase(t)
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

// leads waits until an instance leads and has stored a task.
func leads(t *testing.T, p *recipetest.Process, database *testservers.PostgresDatabase) (token int) {
	t.Helper()
	text := p.Await("leads with token ")
	token, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	testservers.Await(t, 30*time.Second, "the leader stores a task", func() bool {
		stored, err := database.Do("SELECT EXISTS (SELECT FROM task WHERE leader = " + text + ")")
		return err == nil && stored == "t"
	})
	return token
}

// inOrder wants tasks of several leaders, and none of an older one after a newer one.
func inOrder(t *testing.T, database *testservers.PostgresDatabase) {
	t.Helper()
	counts, err := database.Do(`SELECT concat(count(DISTINCT leader) > 1, ' ', count(*) FILTER (WHERE leader < before))
		FROM (SELECT leader, lag(leader) OVER (ORDER BY id) AS before FROM task) AS tasks`)
	if err != nil || counts != "t 0" {
		t.Errorf("several leaders, tasks of an older one: %s, %v; want t 0", counts, err)
	}
}

func TestLeader_stops_nextLeads(t *testing.T) {
	for _, backend := range []string{"redis", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			database := setUp(t)
			lock := database.URL()
			if backend == "redis" {
				lock = testservers.SharedRedis(t).URL()
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
	database, redis := setUp(t), testservers.SharedRedis(t)
	first := instance(t, redis.URL(), database.URL(), "10m")
	leads(t, first, database)
	if _, err := redis.Do("FLUSHDB"); err != nil {
		t.Fatal(err)
	}
	leads(t, instance(t, redis.URL(), database.URL(), "10m"), database)
	first.Await("campaigns again")
	inOrder(t, database)
}
