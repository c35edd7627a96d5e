package pgstore_test

import (
	"testing"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/driver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
)

// anyLocker is a driver that accepts the locks of one process.
type anyLocker struct{ driver.Driver }

func (anyLocker) AcceptsLocker(*distlock.Locker) error { return nil }

// The locks are elsewhere.
func TestConformance_locksElsewhere(t *testing.T) {
	t.Parallel()
	pool := connect(t, migrated(t).URL())
	storetest.Run(t, func(tb testing.TB) storetest.Service {
		locks := memlock.NewDriver()
		return storetest.Service{
			Driver: func(tb testing.TB, keep driver.Retention) driver.Driver {
				d, err := pgstore.NewDriver(pool, &pgstore.Options{Retention: keep})
				must(tb, err)
				return anyLocker{d}
			},
			Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker {
				l, err := distlock.New(locks, opts)
				must(tb, err)
				return l
			},
		}
	})
}
