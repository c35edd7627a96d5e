package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/faultnet"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantError checks which error a call has.
func wantError(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%v, want %v", err, want)
	}
}

func second[T any](_ T, err error) error { return err }

// newPool is a pool for a URL, until the test ends.
func newPool(tb testing.TB, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	must(tb, err)
	for _, change := range change {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// proxied puts a proxy in front of a database, whose URL leads through it.
func proxied(tb testing.TB, db *servers.PostgresDatabase) (proxy *faultnet.Proxy, url string) {
	tb.Helper()
	server := servers.SharedPostgres(tb).Addr()
	proxy = faultnet.New(tb, server)
	return proxy, strings.Replace(db.URL(), server, proxy.Addr(), 1)
}

// migrated is a database of the shared server with the tables of the locks.
func migrated(tb testing.TB) *servers.PostgresDatabase {
	tb.Helper()
	db := servers.SharedPostgres(tb).NewDatabase(tb)
	migrate(tb, db.URL())
	return db
}

func migrate(tb testing.TB, url string) {
	tb.Helper()
	must(tb, pglock.Migrate(context.Background(), newPool(tb, url), nil))
}

// do sends SQL as the superuser.
func do(tb testing.TB, db *servers.PostgresDatabase, sql string) string {
	tb.Helper()
	rows, err := db.Do(sql)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// session is a connection of its own, until the test ends.
type session struct {
	tb   testing.TB
	conn *pgx.Conn
}

func newSession(tb testing.TB, url string) session {
	tb.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	must(tb, err)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return session{tb, conn}
}

// must sends SQL that returns at most one value.
func (s session) must(sql string) (value string) {
	s.tb.Helper()
	err := s.conn.QueryRow(context.Background(), sql, pgx.QueryExecModeSimpleProtocol).Scan((*zeronull.Text)(&value))
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		s.tb.Fatalf("%s: %v", sql, err)
	}
	return value
}

// answer is the value that SQL returns, or its SQLSTATE.
func (s session) answer(sql string) (value string) {
	err := s.conn.QueryRow(context.Background(), sql, pgx.QueryExecModeSimpleProtocol).Scan((*zeronull.Text)(&value))
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	} else if err != nil {
		return err.Error()
	}
	return value
}

// drivers makes drivers of one database, each over a pool of its own.
func drivers(url string) drivertest.New {
	return func(tb testing.TB) driver.Driver {
		tb.Helper()
		return newDriver(tb, newPool(tb, url))
	}
}

func newDriver(tb testing.TB, pool *pgxpool.Pool) driver.Driver {
	tb.Helper()
	d, err := pglock.NewDriver(context.Background(), pool, nil)
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// openDriver is that of a URL, which connects later.
func openDriver(tb testing.TB, url string) driver.Driver {
	tb.Helper()
	d, err := pglock.OpenDriver(url)
	must(tb, err)
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// mustAcquire makes a request that has to be answered.
func mustAcquire(tb testing.TB, d driver.Driver, req driver.AcquireRequest) {
	tb.Helper()
	must(tb, second(d.Acquire(context.Background(), req)))
}

// grantedTo makes a role with the rights of an application, and returns its URL.
func grantedTo(tb testing.TB, db *servers.PostgresDatabase, role string) (url string) {
	tb.Helper()
	role += db.Name()
	do(tb, db, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	do(tb, db, "GRANT USAGE ON SCHEMA belugalock TO "+role)
	do(tb, db, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO "+role)
	tb.Cleanup(func() { do(tb, db, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	return strings.Replace(db.URL(), "postgres@", role+":secret@", 1)
}
