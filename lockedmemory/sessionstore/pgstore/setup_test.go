package pgstore_test

import (
	"context"
	"flag"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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

// migrated makes a database of the shared server with the tables of the store.
func migrated(t testing.TB) *testservers.PostgresDatabase {
	t.Helper()
	db := testservers.SharedPostgres(t).NewDatabase(t)
	must(t, pgstore.Migrate(context.Background(), connect(t, db.URL()), nil))
	return db
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
