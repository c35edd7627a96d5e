package pgstore

import (
	"cmp"
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/internal/postgres"
)

//go:embed sql/*.sql
var files embed.FS

// storePart is that of the store in a schema.
var storePart = postgres.Part{Name: "store", Command: "pgstore.Migrate", Versions: []string{
	postgres.Source(files, "sql", "tables", "session", "append", "append_release", "close", "replace", "read", "sessions",
		"inbox", "rights"),
}}

// schema is the schema of a store.
func (opts *Options) schema() postgres.Schema {
	return postgres.Schema{Name: cmp.Or(opts, &Options{}).Schema, Parts: []postgres.Part{storePart}}
}

// Migrate installs the tables and functions of the store in Schema of opts, or changes them to this
// version. It makes a missing schema. Several programs may call it at once, and a second call
// changes nothing.
//
// The role of pool has the right CREATE on the database, or owns the schema. For another role:
//
//	GRANT USAGE ON SCHEMA belugalock TO application;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO application;
//
// It returns distlock.ErrInvalidOption for a nil pool or a name that Options.Schema does not allow,
// distlock.ErrRefused or distlock.ErrUnavailable, or the error of ctx. Then nothing was changed. After
// distlock.ErrOutcomeUnknown, call it again.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts *Options) error {
	return postgres.Migrate(ctx, "pgstore", pool, opts.schema())
}
