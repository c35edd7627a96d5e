package scratch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/examples/agent/internal/history"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
)

// onPostgres is a database in which a run has a schema of its own.
type onPostgres struct {
	pool   *pgxpool.Pool
	schema string
}

func newPostgres(url, run string) (store, error) {
	locks, err := pglock.OpenDriver(url) // its errors show no password
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err = errors.Join(err, locks.Close()); err != nil {
		return nil, err
	}
	delete(config.ConnConfig.RuntimeParams, "schema")              // the run has one of its own
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // works through every pooler
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return onPostgres{pool, strings.ToLower(strings.ReplaceAll(run, "-", "_"))}, nil
}

func (p onPostgres) Prepare(ctx context.Context) error {
	if err := p.pool.Ping(ctx); err != nil {
		return fmt.Errorf("no answer from PostgreSQL: %w", err)
	}
	err := pglock.Migrate(ctx, p.pool, &pglock.Options{Schema: p.schema})
	if err == nil {
		err = pgstore.Migrate(ctx, p.pool, &pgstore.Options{Schema: p.schema})
	}
	if err == nil {
		_, err = p.pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+p.messages()+
			" (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, list text, message bytea)")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("prepare a schema: %w", err), p.Remove(context.WithoutCancel(ctx)))
	}
	return nil
}

func (p onPostgres) messages() string { return pgx.Identifier{p.schema, "messages"}.Sanitize() }

func (p onPostgres) Log(name string) history.Log { return postgresLog{p, name} }

// postgresLog is the rows of one conversation.
type postgresLog struct {
	onPostgres
	list string
}

func (l postgresLog) Append(ctx context.Context, message []byte) error {
	_, err := l.pool.Exec(ctx, "INSERT INTO "+l.messages()+" (list, message) VALUES ($1, $2)", l.list, message)
	return err
}

func (l postgresLog) All(ctx context.Context) ([][]byte, error) {
	rows, err := l.pool.Query(ctx, "SELECT message FROM "+l.messages()+" WHERE list = $1 ORDER BY number", l.list)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]byte])
}

// Locker and Store share a pool: a Save outside a turn then takes one statement less.
func (p onPostgres) Locker(ctx context.Context, opts distlock.Options) (*distlock.Locker, error) {
	return pglock.New(ctx, p.pool, &pglock.Options{Options: opts, Schema: p.schema})
}

func (p onPostgres) Store(key lockedmemory.KeyFunc) (*history.Store, error) {
	return pgstore.New(p.pool, key, sessionstore.JSON[history.Message]{}, &pgstore.Options{Schema: p.schema})
}

func (p onPostgres) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := p.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{p.schema}.Sanitize()+" CASCADE")
	return err
}

func (p onPostgres) Close() { p.pool.Close() }
