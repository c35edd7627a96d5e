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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := Migrate(context.Background(), pool, nil); err != nil {
		t.Fatal(err)
	}
	return db, pool
}

// opened is a driver over a URL.
func opened(t *testing.T, url string) *service {
	t.Helper()
	d, err := OpenDriver(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*service)
}
