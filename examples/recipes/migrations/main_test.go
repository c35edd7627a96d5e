package main

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/lockurl"
	"github.com/belugalock/belugalock/internal/test/child"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/recipetest"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	child.Serve(map[string]child.Work{"instance": child.Role(instance)})
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

type config struct {
	Lock, Database string
	Steps          []string
}

// instance is a start of the service, with a Locker and a pool of its own.
func instance(ctx context.Context, _ *child.Line, c config) error {
	_, err := start(ctx, c)
	return err
}

func start(ctx context.Context, c config) (applied int, err error) {
	db, err := pgxpool.New(ctx, c.Database)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	locker, err := lockurl.Open(ctx, c.Lock, nil)
	if err != nil {
		return 0, err
	}
	defer locker.Close(context.Background())
	return migrate(ctx, locker, db, c.Steps)
}

func TestMigrate_manyInstances_runEachStepOnce(t *testing.T) {
	recipetest.EachBackend(t, func(t *testing.T, lock, database string) {
		db := recipetest.Pool(t, database)
		slow := append([]string{`SELECT pg_sleep(0.1)`}, steps...)

		const instances = 6
		var all sync.WaitGroup
		var applied [instances]int
		for i := range instances {
			all.Go(func() {
				var err error
				applied[i], err = start(t.Context(), config{Lock: lock, Database: database, Steps: slow})
				if err != nil {
					t.Errorf("instance %d: %v", i, err)
				}
				// The instance has waited for the last step.
				if _, err := db.Exec(t.Context(), `SELECT email FROM customer`); err != nil {
					t.Errorf("instance %d starts too early: %v", i, err)
				}
			})
		}
		all.Wait()
		sum, ran := 0, 0
		for _, n := range applied {
			sum += n
			if n > 0 {
				ran++
			}
		}
		if sum != len(slow) || ran != 1 {
			t.Errorf("the instances ran %v migrations, of %d", applied, len(slow))
		}
	})
}

// startAsleep starts an instance, and returns when the instance is in pg_sleep.
func startAsleep(t *testing.T, db *pgxpool.Pool, c config) *child.Child {
	t.Helper()
	child, err := child.StartRole(t.Context(), "instance", c, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Close() })
	awaitActivity(t, db, `wait_event = 'PgSleep'`)
	return child
}

func awaitActivity(t *testing.T, db *pgxpool.Pool, condition string) {
	t.Helper()
	servers.Await(t, 30*time.Second, "no session with "+condition, func() bool {
		var found bool
		err := db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND `+condition+`)`).Scan(&found)
		return err == nil && found
	})
}

// The instance that runs the migrations is killed in the second step. The next instance runs that
// step again, and the rest.
func TestMigrate_killedInstance_nextRunsTheRest(t *testing.T) {
	database := servers.SharedPostgres(t).NewDatabase(t)
	db := recipetest.Pool(t, database.URL())
	c := config{
		Lock:     servers.SharedRedis(t).URL() + "?ttl=1s",
		Database: database.URL(),
		Steps:    []string{`CREATE TABLE first (id int)`, `SELECT pg_sleep(3)`, `CREATE TABLE third (id int)`},
	}
	killed := startAsleep(t, db, c)
	killed.Kill()
	<-killed.Done()
	c.Steps[1] = `SELECT 2`
	if applied, err := start(t.Context(), c); err != nil || applied != 2 {
		t.Errorf("the next instance ran %d migrations, %v", applied, err)
	}
	if _, err := db.Exec(t.Context(), `SELECT FROM first, third`); err != nil {
		t.Error(err)
	}
}

// The holder is paused in a step, and stays so. PostgreSQL ends its transaction.
func TestMigrate_pausedInstance_nextStarts(t *testing.T) {
	database := servers.SharedPostgres(t).NewDatabase(t)
	db := recipetest.Pool(t, database.URL())
	c := config{
		Lock:     servers.SharedRedis(t).URL() + "?ttl=1s",
		Database: database.URL(),
		Steps:    []string{`CREATE TABLE first (id int)`, `SELECT pg_sleep(1)`, `CREATE TABLE third (id int)`},
	}
	if err := startAsleep(t, db, c).Pause(); err != nil {
		t.Fatal(err)
	}
	c.Steps[1] = `SELECT 2`
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if applied, err := start(ctx, c); err != nil || applied != 2 {
		t.Errorf("the next instance ran %d migrations, %v", applied, err)
	}
}

// An earlier holder that has lost the lock commits a step while the next holder waits for that step.
func TestMigrate_lateCommit_stepIsSkipped(t *testing.T) {
	database := servers.SharedPostgres(t).NewDatabase(t)
	db := recipetest.Pool(t, database.URL())
	c := config{Lock: servers.SharedRedis(t).URL(), Database: database.URL(), Steps: steps[:1]}
	if _, err := start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var next sync.WaitGroup
	defer next.Wait() // after the rollback, which lets it go on
	earlier, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer earlier.Rollback(context.Background())
	if _, err := earlier.Exec(t.Context(), `INSERT INTO schema_version VALUES (2)`); err != nil {
		t.Fatal(err)
	}
	if _, err := earlier.Exec(t.Context(), steps[1]); err != nil {
		t.Fatal(err)
	}
	c.Steps = steps
	next.Go(func() {
		if applied, err := start(t.Context(), c); err != nil || applied != 1 {
			t.Errorf("the next instance ran %d migrations, %v", applied, err)
		}
	})
	awaitActivity(t, db, `wait_event_type = 'Lock'`)
	if err := earlier.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}
