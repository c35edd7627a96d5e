package pgstore_test

import (
	"context"
	"flag"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Tests mostly wait for servers, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(testservers.Sharing{M: m})
}

// migrated makes a database of the shared server with the tables of the locks and the store.
func migrated(t testing.TB) *testservers.PostgresDatabase {
	t.Helper()
	db := testservers.SharedPostgres(t).NewDatabase(t)
	migrate(t, db)
	return db
}

func migrate(t testing.TB, db *testservers.PostgresDatabase) *pgxpool.Pool {
	t.Helper()
	pool := connect(t, db.URL())
	must(t, pglock.Migrate(context.Background(), pool, nil))
	must(t, pgstore.Migrate(context.Background(), pool, nil))
	return pool
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must(t, err)
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must2 is must for a call that also returns a value, which it returns.
func must2(t testing.TB) func(value string, err error) string {
	return func(value string, err error) string {
		t.Helper()
		must(t, err)
		return value
	}
}
