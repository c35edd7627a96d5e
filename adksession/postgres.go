package adksession

import (
	"context"
	"embed"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

//go:embed sql/*.sql
var functions embed.FS

var schema = postgres.Schema{Parts: []postgres.Part{{Name: "adk", Command: "adksession.Migrate",
	Versions: []string{postgres.Source(functions, "sql", "tables", "session")}}}}

// Migrate installs the tables and functions of the sessions in the schema "belugalock", or changes them to
// this version. It makes a missing schema. Several programs may call it at once, and a second call changes
// nothing. No option has a part in it today: opts may be nil.
//
// The role of pool has the right CREATE on the database, or owns the schema. For another role:
//
//	GRANT USAGE ON SCHEMA belugalock TO application;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO application;
//
// It returns distlock.ErrInvalidOption for a nil pool, distlock.ErrRefused or distlock.ErrUnavailable, or
// the error of ctx. Then nothing was changed. After distlock.ErrOutcomeUnknown, call it again.
func Migrate(ctx context.Context, pool *pgxpool.Pool, _ *Options) error {
	return postgres.Migrate(ctx, "adksession", pool, schema)
}

// NewPostgres makes a Service for the database of pool, PostgreSQL 14 or newer, with the locks of locker.
// The caller closes both. NewPostgres does no I/O. It returns distlock.ErrInvalidOption for a nil pool or
// Locker, for a Locker of one process, and for options out of range. The database has what [Migrate]
// installs.
//
// Calls take connections of pool. A pool that the application has used up delays them.
func NewPostgres(pool *pgxpool.Pool, locker *distlock.Locker, opts *Options) (*Service, error) {
	if pool == nil {
		return nil, postgres.ErrNoPool
	}
	return newService(locker, opts, func(keep storedriver.Retention) store {
		return &postgresStore{postgres.Over("adksession", pool, schema), keep}
	})
}

// postgresStore is a store. Its function has the rules.
type postgresStore struct {
	pool *postgres.Pool
	keep storedriver.Retention
}

func (p *postgresStore) do(ctx context.Context, q request) (reply, error) {
	// ⚑ Two calls write the rows that they share in one order. Otherwise they wait for each other.
	keys, contents := slices.Sorted(maps.Keys(q.state)), []string{}
	for _, key := range keys {
		contents = append(contents, q.state[key])
	}
	found, err := postgres.Call(ctx, p.pool, scanReply, "adk_do_v1", string(q.operation), p.keep.Namespace,
		q.app, q.user, q.name, q.token, q.since, p.keep.IdleTTL, q.op, q.last, q.record(), q.recent, keys, contents)
	switch {
	case err != nil:
		return reply{}, err
	case q.name == "":
		return reply{found: found}, nil
	case len(found) == 0:
		return reply{outcome: missing}, nil
	}
	return found[0], nil
}

// scanReply reads a row of type adk_reply.
func scanReply(row pgx.CollectableRow) (r reply, err error) {
	var keys, contents []string
	err = row.Scan(&r.outcome, &r.mark, &r.id.app, &r.id.user, &r.id.name, &r.op, &r.n, &r.updated,
		&keys, &contents, &r.records)
	r.state = make(state)
	for i, key := range keys {
		r.state[key] = contents[i]
	}
	return r, err
}
