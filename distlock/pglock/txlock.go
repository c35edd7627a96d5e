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
	return txLocked(tx.QueryRow(ctx, txLock, advisoryKey(key)))
}

// TxLockSQL is [TxLock] for database/sql with the driver github.com/jackc/pgx/v5/stdlib.
func TxLockSQL(ctx context.Context, tx *sql.Tx, key string) error {
	if tx == nil {
		return errNoTx
	}
	return txLocked(tx.QueryRowContext(ctx, txLock, advisoryKey(key)))
}

// ⚑ At REPEATABLE READ, the statement that waits takes the snapshot of the whole transaction before
// the wait. So no statement waits there.
const txLock = `SELECT CASE WHEN current_setting('transaction_isolation') = 'read committed'
	THEN pg_advisory_xact_lock($1)::text IS NOT NULL ELSE false END`

func txLocked(row interface{ Scan(dest ...any) error }) error {
	var locked bool
	if err := row.Scan(&locked); err != nil {
		return fmt.Errorf("pglock: TxLock: %w; roll the transaction back", err)
	}
	if !locked {
		return fmt.Errorf("%w: nothing is locked; begin the transaction with READ COMMITTED", ErrIsolation)
	}
	return nil
}

// advisoryKey is the number under which PostgreSQL locks a key.
func advisoryKey(key string) int64 {
	digest := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(digest[:8]))
}
