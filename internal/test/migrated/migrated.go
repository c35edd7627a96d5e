// Package migrated makes databases of PostgreSQL with the schemas of locks and sessions.
package migrated

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// Database makes a database of a server.
func Database(tb testing.TB, server *servers.Postgres) *servers.PostgresDatabase {
	tb.Helper()
	db := server.NewDatabase(tb)
	pool, err := pgxpool.New(tb.Context(), db.URL())
	if err != nil {
		tb.Fatal(err)
	}
	defer pool.Close()
	if err := errors.Join(pglock.Migrate(tb.Context(), pool, nil), pgstore.Migrate(tb.Context(), pool, nil)); err != nil {
		tb.Fatal(err)
	}
	return db
}
