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

// EmptyRedis returns the URL of the shared Redis without data. Only for tests that are not parallel.
func EmptyRedis(tb testing.TB) string {
	tb.Helper()
	server := servers.SharedServer()
	if _, err := server.Do("FLUSHALL"); err != nil {
		tb.Fatal(err)
	}
	return server.URL()
}

// OnEach runs a test with a URL of each backend, without data. Only for tests that are not parallel.
func OnEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	postgres := Database(t, servers.SharedPostgres(t)).URL()
	for name, url := range map[string]string{"mem": "mem://", "redis": EmptyRedis(t), "postgres": postgres} {
		t.Run(name, func(t *testing.T) { test(t, url) })
	}
}
