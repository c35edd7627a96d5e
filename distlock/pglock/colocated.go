package pglock

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/internal/postgres"
)

// Colocated is the lock of a store in the same database and schema. Functions of the store call
// release_v1. Colocated is for packages like pgstore, and may change between releases: use all packages
// of this module in one version.
type Colocated struct {
	// Source is the pool that was given to New or NewDriver; nil after OpenDriver.
	Source *pgxpool.Pool
	// Schema is the schema of the locks.
	Schema postgres.Schema
	// Releases reports whether a function of the store may release the lock. It is false if the
	// driver is wrapped, because the wrapper has to see each release.
	Releases bool
	// Notify notifies the waiter of a handoff. Call it after the commit. It ignores the zero Handoff.
	Notify func(Handoff)
}

// ColocatedOf returns the lock of a driver of this package, also beneath wrappers.
func ColocatedOf(locks driver.Driver) (Colocated, bool) {
	s, ok := driver.As[*service](locks)
	if !ok {
		return Colocated{}, false
	}
	return Colocated{
		Source: s.source, Schema: s.schema, Releases: locks == driver.Driver(s), Notify: s.wakes.handoff,
	}, true
}

// Companion returns a pool of at most size connections beside those of the driver, with the same
// configuration and schema. It checks part instead of the locks. Every call with the same part returns
// the same pool, which the driver closes. Nil without an error: the driver is not one of this package.
func Companion(locks driver.Driver, caller string, size int, part postgres.Part) (*postgres.Pool, error) {
	s, ok := driver.As[*service](locks)
	if !ok {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pool := s.companions[part.Name]; pool != nil {
		return pool, nil
	}
	schema := postgres.Schema{Name: s.schema.Name, Parts: []postgres.Part{part}}
	pool, err := postgres.Open(caller, s.config.Copy(), size, schema)
	if err == nil {
		s.companions[part.Name] = pool
	}
	return pool, err
}
