package pglock

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

//go:embed sql/*.sql
var files embed.FS

var lockPart = postgres.Part{Name: "lock", Command: "pglock.Migrate", Versions: []string{
	postgres.Source(files, "sql", "tables", "handoff", "acquire", "release", "extend", "operator", "wakes", "rights"),
}}

// Migrate installs the tables and functions of the locks and of [Fence] in the schema of opts, or their
// newer versions, in one transaction. It changes nothing if they are up to date. Any number of programs may
// call it at the same time, also while older versions of this package use the schema.
//
// The role of pool becomes the owner. It needs CREATE on the database, or a schema of its own. Other
// roles get no right: docs/design/postgres.md lists those that an application needs. Errors:
// distlock.ErrInvalidOption, ErrRefused, ErrUnavailable, ErrOutcomeUnknown (call it again), and that
// of ctx.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts *Options) error {
	return migrate(ctx, pool, opts, lockPart, fencePart)
}

func migrate(ctx context.Context, pool *pgxpool.Pool, opts *Options, parts ...postgres.Part) error {
	if opts == nil {
		opts = &Options{}
	}
	return MigrateParts(ctx, "pglock", pool, opts.Schema, parts...)
}

// MigrateParts is [Migrate] of other parts, for packages like pgstore. caller begins the errors.
func MigrateParts(ctx context.Context, caller string, pool *pgxpool.Pool, schema string, parts ...postgres.Part) error {
	if pool == nil {
		return errNoPool
	}
	s := postgres.Schema{Name: schema, Parts: parts}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("%w: Schema: %w", distlock.ErrInvalidOption, err)
	}
	switch err := postgres.Migrate(ctx, caller, pool, s); {
	case err == nil:
		return nil
	case ctx.Err() == nil && driver.MayHaveEffect(err):
		return fmt.Errorf("%w: call Migrate again: %w", distlock.ErrOutcomeUnknown, err)
	default:
		return explain(ctx, err)
	}
}

var errNoPool = fmt.Errorf("%w: the pool is nil: make one with pgxpool.New", distlock.ErrInvalidOption)
