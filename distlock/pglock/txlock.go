package pglock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belugalock/belugalock/distlock"
)

// ErrIsolation: the isolation of the transaction is not READ COMMITTED. Nothing is locked.
var ErrIsolation = errors.New("pglock: isolation is not READ COMMITTED")

var errNoTx = fmt.Errorf("%w: the transaction is nil; nothing was sent: begin a transaction first",
	distlock.ErrInvalidOption)

// TxLock has no fencing token, no deadline and no queue, and protects only what tx writes in its
// own database, so prefer [Fence] for work outside of it. It waits until tx alone holds the
// advisory lock on key, and tx holds the lock until its end.
//
// Call it before tx reads what the lock protects, and outside of savepoints: a rollback to a
// savepoint releases the lock. Transactions that lock several keys lock them in one order. Two keys
// may share a lock, because PostgreSQL sees 8 bytes of the SHA-256 of a key. TxLock and
// [SessionLock] share their locks.
//
// TxLock fails with [ErrIsolation]: at a stricter isolation, tx would read the state from before
// the wait. It also fails with the error of ctx or of tx. After a failure roll tx back. A nil tx fails
// with [distlock.ErrInvalidOption].
func TxLock(ctx context.Context, tx pgx.Tx, key string) error {
	if tx == nil {
		return errNoTx
	}
	done, err := tx.Exec(ctx, txLock(key))
	return txLocked(done.RowsAffected(), err)
}

// TxLockSQL is [TxLock] for database/sql with the driver github.com/jackc/pgx/v5/stdlib.
func TxLockSQL(ctx context.Context, tx *sql.Tx, key string) error {
	if tx == nil {
		return errNoTx
	}
	done, err := tx.ExecContext(ctx, txLock(key))
	if err != nil {
		return txLocked(0, err)
	}
	return txLocked(done.RowsAffected())
}

// txLock is a message without arguments, so it leaves no prepared statement in a pooler.
//
// ⚑ At REPEATABLE READ, the statement that waits takes the snapshot of the whole transaction before
// the wait. So no statement waits there: it returns no row.
func txLock(key string) string {
	return fmt.Sprintf("SELECT pg_advisory_xact_lock('%d'::bigint) WHERE current_setting('transaction_isolation') = 'read committed'",
		advisoryKey(key))
}

func txLocked(rows int64, err error) error {
	if err != nil {
		return fmt.Errorf("pglock: TxLock: %w; roll the transaction back", err)
	}
	if rows == 0 {
		return fmt.Errorf("%w: nothing is locked; begin the transaction with READ COMMITTED", ErrIsolation)
	}
	return nil
}

// advisoryKey is the number under which PostgreSQL locks a key.
func advisoryKey(key string) int64 {
	digest := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(digest[:8]))
}
