package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/postgres"
	"github.com/belugalock/belugalock/lockedmemory"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
)

// connections is how many the store of Open has at most, beside those of the lock.
const connections = 4

// NewColocatedDriver makes a driver beside locks, a driver of package pglock: for the same server,
// database and schema, with at most 4 connections of its own. All stores beside locks share these,
// and end with locks. NewColocatedDriver does no I/O. It returns distlock.ErrInvalidOption for
// other drivers, and for a retention out of range.
func NewColocatedDriver(locks driver.Driver, keep *storedriver.Retention) (storedriver.Driver, error) {
	beside, ok := driver.As[postgres.Locks](locks)
	if !ok {
		return nil, fmt.Errorf("%w: the driver of the locks is not of package pglock: make it with pglock.NewDriver",
			distlock.ErrInvalidOption)
	}
	pool, err := beside.Companion("pgstore", connections, storePart)
	if err != nil {
		return nil, err
	}
	s, err := newSessions(pool, keep)
	if err != nil {
		return nil, err
	}
	s.locks = locks
	return s, nil
}

// Open makes a Locker and a store for the database of rawURL, see pglock.OpenDriver. Its parameter
// schema names the schema. Give both to lockedmemory.New, with the same KeyFunc. Both have
// connections of their own, at most 8, and end with the Locker's Close. If Options.Lock has a Namespace
// and Options.Retention has none, that of the sessions is the lock's and ":session". The schema has what
// pglock.Migrate and [Migrate] install.
//
// Open does no I/O. It returns distlock.ErrInvalidOption for a URL that is not valid, for
// Options.Schema, and as [New] and pglock.New do. The error shows no part of a password. If
// PostgreSQL does not answer, the first operation fails with distlock.ErrUnavailable. If the schema
// is missing, it fails with distlock.ErrRefused.
func Open[M, D any](ctx context.Context, rawURL string, key lockedmemory.KeyFunc, codec sessionstore.Codec[M, D],
	opts *Options) (*distlock.Locker, *sessionstore.Store[M, D], error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	opts = cmp.Or(opts, &Options{})
	if opts.Schema != "" {
		return nil, nil, fmt.Errorf("%w: Schema is given to Open: use the parameter schema of the URL",
			distlock.ErrInvalidOption)
	}
	d, err := pglock.OpenDriver(rawURL)
	if err != nil {
		return nil, nil, err
	}
	var locker *distlock.Locker
	var store *sessionstore.Store[M, D]
	keep := opts.Retention.Beside(opts.Lock.Namespace)
	sessions, err := NewColocatedDriver(d, &keep)
	if err == nil {
		store, err = sessionstore.New(sessions, key, codec, &opts.Store)
	}
	if err == nil {
		locker, err = distlock.New(d, &opts.Lock)
	}
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return locker, store, nil
}
