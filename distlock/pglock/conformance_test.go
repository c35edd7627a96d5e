package pglock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/leakcheck"
	"github.com/belugalock/belugalock/internal/testservers"
)

func TestMain(m *testing.M) { leakcheck.VerifyTestMain(testservers.Sharing{M: m}) }

// newPool is a pool for a URL, until the test ends.
func newPool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// migrated is a database of the shared server with the tables of the locks.
func migrated(tb testing.TB) *testservers.PostgresDatabase {
	tb.Helper()
	db := testservers.SharedPostgres(tb).NewDatabase(tb)
	migrate(tb, db.URL())
	return db
}

func migrate(tb testing.TB, url string) {
	tb.Helper()
	if err := pglock.Migrate(context.Background(), newPool(tb, url), nil); err != nil {
		tb.Fatal(err)
	}
}

// drivers makes drivers of one database, each over a pool of its own.
func drivers(url string) drivertest.New {
	return func(tb testing.TB) driver.Driver {
		tb.Helper()
		d, err := pglock.NewDriver(context.Background(), newPool(tb, url), nil)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = d.Close() })
		return d
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Service{New: drivers(migrated(t).URL())})
}

func TestConformance_overPgBouncer(t *testing.T) {
	db := migrated(t)
	pooler := testservers.StartPgBouncer(t, testservers.SharedPostgres(t), "transaction")
	drivertest.Run(t, drivertest.Service{New: drivers(pooler.URL(db.Name()))})
}

func BenchmarkAcquireRelease(b *testing.B) { drivertest.Benchmark(b, drivers(migrated(b).URL())) }
