package pglock

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

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
// roles get no right: docs/reference/keys-and-rights.md lists those that an application needs. Errors:
// distlock.ErrInvalidOption, ErrRefused, ErrUnavailable, ErrOutcomeUnknown (call it again), and that
// of ctx.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts *Options) error {
	return postgres.Migrate(ctx, "pglock", pool, opts.schema(lockPart, fencePart))
}
