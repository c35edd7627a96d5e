package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
)

// migratePause is the time between two attempts of a Migrate.
const migratePause = 100 * time.Millisecond

// ErrNoPool refuses a nil pool.
var ErrNoPool = fmt.Errorf("%w: the pool is nil: make one with pgxpool.New", distlock.ErrInvalidOption)

// Migrate installs the schema, or its newer versions, in one transaction. Programs may call it at the
// same time. The role needs CREATE on the database, or owns the schema. While another transaction
// locks a table that Migrate changes, Migrate tries again until ctx ends. Its errors are those of
// distlock. caller begins their causes.
func Migrate(ctx context.Context, caller string, pool *pgxpool.Pool, schema Schema) error {
	if pool == nil {
		return ErrNoPool
	}
	if err := schema.Validate(); err != nil {
		return err
	}
	switch err := migrate(ctx, caller, pool, schema); {
	case err == nil:
		return nil
	case ctx.Err() == nil && driver.MayHaveEffect(err):
		return fmt.Errorf("%w: call Migrate again: %w", distlock.ErrOutcomeUnknown, err)
	default:
		return Explain(ctx, err)
	}
}

// Explain gives the error of a call that the Locker does not make its kind for users.
func Explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, driver.ErrRefused):
		return fmt.Errorf("%w: %w", distlock.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", distlock.ErrUnavailable, err)
}

func migrate(ctx context.Context, caller string, pool *pgxpool.Pool, schema Schema) error {
	for {
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, schema.Script(), pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err == nil {
			return nil
		}
		if !hasCode(err, "40001", "40P01", "55P03") {
			return fmt.Errorf("%s: %w", caller, KindOf(err))
		}
		select {
		case <-time.After(migratePause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", caller, ctx.Err(), KindOf(err))
		}
	}
}

// Script is the statement that installs the schema, for a transaction at READ COMMITTED. A repetition
// changes nothing. psql can run it, too.
//
// ⚑ CREATE IF NOT EXISTS fails if two transactions create the same thing at once, so an advisory lock
// comes first. A transaction that holds a table delays every later one, so no change waits for longer
// than 2 s. ⚑ The search_path has no schema in which other roles may create operators: the owner of the
// functions would run them.
func (s Schema) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, head, literal(s.name()))
	for _, part := range s.Parts {
		fmt.Fprintf(&b, "  installed := coalesce((SELECT version FROM {schema}.version WHERE part = %s), 0);\n",
			literal(part.Name))
		for i, sql := range part.Versions {
			fmt.Fprintf(&b, "  IF installed < %d THEN EXECUTE %s; END IF;\n", i+1, literal(sql))
		}
		fmt.Fprintf(&b, "  INSERT INTO {schema}.version VALUES (%s, %d)\n    ON CONFLICT (part) DO UPDATE "+
			"SET version = greatest(version.version, excluded.version);\n", literal(part.Name), len(part.Versions))
	}
	b.WriteString("  PERFORM set_config('lock_timeout', lock_timeout_before, true);\n" +
		"  PERFORM set_config('search_path', search_path_before, true);\nEND $migrate$;\n")
	return s.In(b.String())
}

const head = `DO $migrate$
DECLARE
  search_path_before text := pg_catalog.current_setting('search_path');
  lock_timeout_before text := pg_catalog.current_setting('lock_timeout');
  installed integer;
BEGIN
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  IF current_setting('server_encoding') <> 'UTF8' OR current_setting('server_version_num')::integer < 140000 THEN
    RAISE feature_not_supported USING MESSAGE = format(
      'belugalock needs PostgreSQL 14 or newer and a database with the encoding UTF8: this is PostgreSQL %%s with %%s',
      current_setting('server_version'), current_setting('server_encoding'));
  END IF;
  PERFORM pg_advisory_xact_lock(7809911865962128235);
  PERFORM set_config('lock_timeout', '2s', true);
  IF to_regnamespace(%[1]s) IS NULL THEN
    EXECUTE format('CREATE SCHEMA %%I', %[1]s);
  END IF;
  IF to_regprocedure('{schema}.version_v1(text)') IS NULL THEN
    IF EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(%[1]s))
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace(%[1]s)) THEN
      RAISE duplicate_schema USING MESSAGE = 'the schema holds objects of another program: choose an empty one, or a new name';
    END IF;
    CREATE TABLE {schema}.version (part text PRIMARY KEY, version integer NOT NULL);
    CREATE FUNCTION {schema}.version_v1(part text) RETURNS integer
      LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
      RETURN coalesce((SELECT v.version FROM {schema}.version v WHERE v.part = version_v1.part), 0);
    -- Makes the present transaction durable, or not. setting is what the database had set before. ⚑ A SET
    -- clause of a function ends before the commit. ⚑ The warning of a cancelled commit must reach the driver,
    -- also if the database had turned warnings off.
    CREATE FUNCTION {schema}.durable_v1(wanted boolean, setting text) RETURNS text LANGUAGE sql VOLATILE
      RETURN CASE WHEN NOT wanted THEN set_config('synchronous_commit', 'off', true)
        ELSE concat(set_config('client_min_messages', 'warning', true), set_config('synchronous_commit',
          CASE WHEN setting IN ('off', 'local') THEN 'on' ELSE setting END, true)) END;
    REVOKE ALL ON FUNCTION {schema}.version_v1, {schema}.durable_v1 FROM PUBLIC;
  END IF;
`

// literal quotes a text.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
