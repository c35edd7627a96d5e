package pglock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/fencing"
	"github.com/belugalock/belugalock/internal/postgres"
)

// ErrMisplaced: the transaction has read or written before [Fence], or has an open savepoint.
// Nothing is written, and the transaction cannot commit. Make Fence its first statement, outside of
// savepoints.
var ErrMisplaced = errors.New("pglock: fence misplaced")

// Fence refuses a transaction under an outdated lease, and keeps the transactions of one name in
// the order of their fencing tokens. It is the first statement of tx, in no savepoint. Several
// leases go into one call. The lock may be in any backend. The database of tx needs [Migrate] or
// [MigrateFence].
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := pglock.Fence(ctx, tx, lease); err != nil {
//			return err
//		}
//		return book(ctx, tx) // reads and writes
//	})
//
// Fence waits for fenced transactions of the same name that are still open. Once it has passed, the
// server ends tx if tx is idle for the time that was left of the lease, or for a shorter
// idle_in_transaction_session_timeout of the application.
//
// If Fence fails, roll tx back: nothing is stored. If a lease has ended, Fence fails as Lease.Err, and
// sends no statement, so a commit that follows would succeed. Once the server has refused, it does not
// commit tx. The other failures:
//
//   - [distlock.ErrLost]: a later lease has passed the fence.
//   - [ErrMisplaced]: tx has run a query before, or has an open savepoint.
//   - [distlock.ErrRefused]: a right or the schema is missing, or the server is a standby.
//   - [distlock.ErrUnavailable]: repeat the whole transaction. At REPEATABLE READ and above, that is usual
//     under contention (SQLSTATE 40001). It also follows a loss of tokens in the lock service.
//   - The error of ctx.
//
// Leases of locks in several schemas of pglock, and a nil tx, fail with [distlock.ErrInvalidOption].
func Fence(ctx context.Context, tx pgx.Tx, leases ...*distlock.Lease) error {
	if tx == nil {
		return errNoTx
	}
	return fence(ctx, func(ctx context.Context, statement string) error {
		_, err := tx.Exec(ctx, statement)
		return err
	}, leases)
}

// FenceSQL is [Fence] for database/sql with the driver github.com/jackc/pgx/v5/stdlib.
func FenceSQL(ctx context.Context, tx *sql.Tx, leases ...*distlock.Lease) error {
	if tx == nil {
		return errNoTx
	}
	return fence(ctx, func(ctx context.Context, statement string) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}, leases)
}

// fenceStatement fails after any query of the transaction, and inside a savepoint: there the server
// makes no read-only transaction writable.
const fenceStatement = "SET TRANSACTION READ ONLY; SET TRANSACTION READ WRITE; " +
	"SELECT {schema}.fence_v1('{%s}', '{%s}', '{%s}', %d)"

func fence(ctx context.Context, exec func(context.Context, string) error, leases []*distlock.Lease) error {
	if len(leases) == 0 {
		return fmt.Errorf("%w: a fence needs a lease", distlock.ErrNotHeld)
	}
	var (
		statement                string
		namespaces, keys, tokens []string
		left                     = time.Duration(math.MaxInt64)
	)
	for _, lease := range leases {
		if lease == nil {
			return fmt.Errorf("%w: the lease is nil", distlock.ErrNotHeld)
		}
		if err := lease.Err(); err != nil {
			return fmt.Errorf("%w; the fence sent no statement: roll the transaction back", err)
		}
		s := schemaOf(lease).In(fenceStatement)
		if statement != "" && s != statement {
			return fmt.Errorf("%w: the locks of the leases are in several schemas, and so are their marks; "+
				"no statement was sent; use locks of one schema in one transaction", distlock.ErrInvalidOption)
		}
		statement = s
		namespaces = append(namespaces, hex.EncodeToString([]byte(fencing.Options(fencing.Locker(lease)).Namespace)))
		keys = append(keys, hex.EncodeToString([]byte(lease.Key())))
		tokens = append(tokens, strconv.FormatInt(lease.Fence(), 10))
		left = min(left, time.Until(lease.Deadline()))
	}
	// A message without arguments leaves no prepared statement in a pooler. It has digits for names, so
	// it means the same under all settings of the connection.
	err := exec(ctx, fmt.Sprintf(statement, strings.Join(namespaces, ","), strings.Join(keys, ","),
		strings.Join(tokens, ","), left.Milliseconds()))
	if err != nil {
		return fenceFailed(ctx, leases, err)
	}
	for _, lease := range leases {
		fenced(lease).Store(true)
	}
	return nil
}

func fenceFailed(ctx context.Context, leases []*distlock.Lease, err error) error {
	var server *pgconn.PgError
	switch {
	case !errors.As(err, &server):
	case server.Code == "ZF001":
		return stale(ctx, leases, server)
	case server.Code == "25001":
		return fmt.Errorf("%w: the transaction has run a query before, or has an open savepoint; nothing was written; "+
			"begin a new transaction with Fence, and name all leases in one call", ErrMisplaced)
	}
	switch err = postgres.KindOf(err); {
	case errors.Is(err, driver.ErrRefused):
		return fmt.Errorf("%w: fence: %w; nothing was written; run pglock.MigrateFence in the database of the "+
			"transaction, check the rights of its user, and that the server is the primary", distlock.ErrRefused, err)
	case ctx.Err() != nil:
		return fmt.Errorf("pglock: fence: %w; nothing was written", err)
	}
	return fmt.Errorf("%w: fence: %w; nothing was written; repeat the whole transaction", distlock.ErrUnavailable, err)
}

// stale is the error of a lease whose token is below the mark. The lock may have lost its last
// token while the lease is still the rightful one. Then the lease gets a token above the mark.
//
// ⚑ A lease that has passed the fence before has met a mark that was lower. So another lease has
// raised the mark since, and no token helps.
func stale(ctx context.Context, leases []*distlock.Lease, server *pgconn.PgError) error {
	var (
		number int
		mark   int64
	)
	if _, err := fmt.Sscanf(server.Detail, "lease %d, mark %d", &number, &mark); err != nil {
		return fmt.Errorf("%w: fence: %w", distlock.ErrLost, server)
	}
	lease := leases[number-1]
	token, reason := lease.Fence(), "the lease passed the fence before"
	if !fenced(lease).Load() {
		err := fencing.RaiseToken(ctx, lease, mark)
		if err == nil {
			return fmt.Errorf("%w: fence: the lock service had lost its tokens, and the lease has a higher one now; "+
				"nothing was written; repeat the whole transaction", distlock.ErrUnavailable)
		}
		reason = strings.TrimPrefix(err.Error(), distlock.ErrLost.Error()+": ")
	}
	return fmt.Errorf("%w: fence: the database has seen fencing token %d, this lease has %d: %s; nothing was written; "+
		"acquire the lock again; if this repeats, compare Namespace and server of the Lockers of all instances",
		distlock.ErrLost, mark, token, reason)
}

type fencedKey struct{}

// fenced notes that a lease has passed the fence.
func fenced(lease *distlock.Lease) *atomic.Bool {
	return fencing.Attach(lease, fencedKey{}, func() any { return new(atomic.Bool) }).(*atomic.Bool)
}

// schemaOf is the schema of the lock of a lease, or the default one if the lock is in another
// backend.
func schemaOf(lease *distlock.Lease) postgres.Schema {
	if s, ok := driver.As[*service](fencing.Driver(fencing.Locker(lease))); ok {
		return s.schema
	}
	return postgres.Schema{}
}

var fencePart = postgres.Part{Name: "fence", Command: "pglock.MigrateFence", Versions: []string{
	postgres.Source(files, "sql", "fence"),
}}

// MigrateFence installs what [Fence] needs in the database of pool, and nothing else: for an
// application whose locks are in another database or backend. Programs may call it at the same
// time. Of opts it uses Schema, which must be that of [New]; locks of other backends need the
// default.
//
// The role of pool may create a schema. Grant USAGE on the schema and EXECUTE on its function
// fence_v1 to the role of the application.
func MigrateFence(ctx context.Context, pool *pgxpool.Pool, opts *Options) error {
	return postgres.Migrate(ctx, "pglock", pool, opts.schema(fencePart))
}
