package subject

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"

	advisory "github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver of allisson/go-pglock

	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// tables are those of the bare statements.
const tables = `
CREATE TABLE bare_lock (key text PRIMARY KEY, owner text, expires_at timestamptz) WITH (fillfactor = 50);
CREATE TABLE bare_exchange (session text, n bigint, op text, messages bytea[], PRIMARY KEY (session, n));`

// PreparePostgres makes the tables of all subjects.
func PreparePostgres(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	return errors.Join(pglock.Migrate(ctx, pool, nil), pgstore.Migrate(ctx, pool, nil))
}

// bare, at the end of a URL, gives bare statements the exec mode of this library, and flushes them to disk.
const bare = "&default_query_exec_mode=cache_describe&synchronous_commit=on"

func (s *Setup) pool(url string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		s.onClose(pool.Close)
	}
	return pool, err
}

// openUpdates opens a lock of two statements, without waiters, fences, renewal and idempotence. Both are
// flushed to disk.
func openUpdates(s *Setup, url string) (Locker, error) {
	pool, err := s.pool(url + bare)
	if err != nil {
		return nil, err
	}
	// exec fails if the statement changes no row.
	exec := func(ctx context.Context, statement string, args ...any) error {
		done, err := pool.Exec(ctx, statement, args...)
		if err == nil && done.RowsAffected() == 0 {
			err = fmt.Errorf("no row is changed by %s", statement)
		}
		return err
	}
	return func(ctx context.Context, key string) (Held, error) {
		acquire := func() error {
			return exec(ctx, `UPDATE bare_lock SET owner = $2, expires_at = clock_timestamp() + $3
				WHERE key = $1 AND owner IS NULL`, key, op, TTL)
		}
		err := acquire()
		if err != nil { // a new key
			err = errors.Join(exec(ctx, "INSERT INTO bare_lock VALUES ($1)", key), acquire())
		}
		return heldFunc(func(ctx context.Context) error {
			return exec(ctx, "UPDATE bare_lock SET owner = NULL WHERE key = $1 AND owner = $2", key, op)
		}), err
	}, nil
}

// openAllisson opens a lock that takes advisory locks, each on a connection of its own.
func openAllisson(s *Setup, url string) (Locker, error) {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return nil, err
	}
	s.onClose(func() { _ = db.Close() })
	db.SetMaxIdleConns(32) // else the waiters connect anew each time
	return func(ctx context.Context, key string) (Held, error) {
		id := fnv.New64a()
		_, _ = id.Write([]byte(key))
		lock, err := advisory.NewLock(ctx, int64(id.Sum64()), db)
		if err != nil {
			return nil, err
		}
		if err := lock.WaitAndLock(ctx); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		return heldFunc(func(ctx context.Context) error {
			return errors.Join(lock.Unlock(ctx), lock.Close())
		}), nil
	}, nil
}
