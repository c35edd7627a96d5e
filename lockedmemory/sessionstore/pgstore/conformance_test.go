package pgstore_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock"
	"github.com/belugalock/belugalock/distlock/memlock"
	"github.com/belugalock/belugalock/distlock/pglock"
	"github.com/belugalock/belugalock/internal/test/servers"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/pgstore"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storedriver"
	"github.com/belugalock/belugalock/lockedmemory/sessionstore/storetest"
)

// service is the store of a pool, beside the locks that locker makes.
func service(pool *pgxpool.Pool, locker func(*distlock.Options) (*distlock.Locker, error),
	wrap func(storedriver.Driver) storedriver.Driver) storetest.Service {
	return storetest.Service{
		Driver: func(tb testing.TB, keep storedriver.Retention) storedriver.Driver {
			return wrap(returned(pgstore.NewDriver(pool, &pgstore.Options{Retention: keep}))(tb))
		},
		Locker: func(tb testing.TB, opts *distlock.Options) *distlock.Locker { return returned(locker(opts))(tb) },
	}
}

// The documented rights suffice for all calls, and give no access to a table.
func TestConformance_locksBeside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pool := connect(t, r.user("application"))
	r.do(`GRANT USAGE ON SCHEMA belugalock TO application;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA belugalock TO application`)
	for _, table := range []string{"session", "exchange", "known", "pending"} {
		if _, err := pool.Exec(t.Context(), "SELECT FROM belugalock."+table); err == nil {
			t.Errorf("the application may read %s", table)
		}
	}
	storetest.Run(t, func(testing.TB) storetest.Service { // with locks in the same database and schema
		return service(pool, func(o *distlock.Options) (*distlock.Locker, error) {
			return pglock.New(context.Background(), pool, &pglock.Options{Options: *o})
		}, func(d storedriver.Driver) storedriver.Driver { return d })
	})
}

// anyLocker is a driver that accepts the locks of one process.
type anyLocker struct{ storedriver.Driver }

func (anyLocker) AcrossProcesses() bool { return false }

// elsewhere is the store of a pool, with locks in the process.
func elsewhere(pool *pgxpool.Pool) func(tb testing.TB) storetest.Service {
	return func(testing.TB) storetest.Service {
		locks := memlock.NewDriver()
		return service(pool, func(o *distlock.Options) (*distlock.Locker, error) { return distlock.New(locks, o) },
			func(d storedriver.Driver) storedriver.Driver { return anyLocker{d} })
	}
}

func TestConformance_locksElsewhere(t *testing.T) {
	t.Parallel()
	storetest.Run(t, elsewhere(newRig(t).pool))
}

// A stricter default isolation of the database changes nothing.
func TestConformance_pgBouncer(t *testing.T) {
	t.Parallel()
	db := newRig(t).db
	returned(db.Do("ALTER DATABASE " + db.Name() + " SET default_transaction_isolation = 'repeatable read'"))(t)
	bouncer := servers.StartPgBouncer(t, servers.SharedPostgres(t), "transaction")
	storetest.Run(t, elsewhere(connect(t, bouncer.URL(db.Name()))))
}
