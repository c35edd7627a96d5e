package pglock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/test/servers"
)

// migratedDB is a database with the tables of the locks, and a pool for it.
func migratedDB(t *testing.T, params string) (*servers.PostgresDatabase, *pgxpool.Pool) {
	t.Helper()
	db := servers.SharedPostgres(t).NewDatabase(t)
	pool, err := pgxpool.New(context.Background(), db.URL()+params)
	must(t, err)
	t.Cleanup(pool.Close)
	must(t, Migrate(context.Background(), pool, nil))
	return db, pool
}

// opened is a driver over a URL.
func opened(t *testing.T, url string) *service {
	t.Helper()
	d, err := OpenDriver(url)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(*service)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }
