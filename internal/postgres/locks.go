package postgres

import "github.com/jackc/pgx/v5/pgxpool"

// Locks is the driver of package pglock, as a store in the same database sees it. Functions of the store
// call release_v1 of the locks.
type Locks interface {
	// Source is the pool that was given to pglock.New; nil after pglock.OpenDriver.
	Source() *pgxpool.Pool
	// Notify notifies the waiter of a handoff by release_v1, after the commit. It ignores an empty channel.
	// A message that is cut after the owner shows no grant.
	Notify(channel, message string)
	// Companion returns a pool of at most size connections beside those of the driver, with the same
	// configuration and schema. It checks part instead of the locks. Every call with the same part
	// returns the same pool, which the driver closes.
	Companion(caller string, size int, part Part) (*Pool, error)
}
