package pglock_test

import (
	"flag"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belugalock/belugalock/distlock/driver"
	"github.com/belugalock/belugalock/distlock/drivertest"
	"github.com/belugalock/belugalock/internal/test/leakcheck"
	"github.com/belugalock/belugalock/internal/test/servers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more of them than processors can.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	leakcheck.VerifyTestMain(servers.Sharing{M: m})
}

// TestConformance runs as a role that has the documented rights alone.
func TestConformance(t *testing.T) {
	server := servers.StartPostgres(t)
	db := server.NewDatabase(t)
	migrate(t, db.URL())
	app, role := grantedTo(t, db, "app"), "app"+db.Name()
	var last atomic.Pointer[pgxpool.Pool] // of the driver that was made last
	drivertest.Run(t, drivertest.Service{
		New: func(tb testing.TB) driver.Driver {
			pool := newPool(tb, app)
			last.Store(pool)
			return newDriver(tb, pool)
		},
		Restart: server.Restart,
		UsePool: func() (free func()) {
			pool := last.Load()
			conns := make([]*pgxpool.Conn, pool.Config().MaxConns)
			for i := range conns {
				conn, err := pool.Acquire(t.Context())
				must(t, err)
				conns[i] = conn
			}
			return func() {
				for _, conn := range conns {
					conn.Release()
				}
			}
		},
		CutConnections: func() {
			do(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'app%'")
		},
		Hang: func() func() {
			server.Pause()
			return server.Resume
		},
		DenyRight: func() func() {
			const functions = " EXECUTE ON FUNCTION belugalock.acquire_v1, belugalock.release_v1, belugalock.ask_v1 "
			do(t, db, "REVOKE"+functions+"FROM "+role)
			return func() { do(t, db, "GRANT"+functions+"TO "+role) }
		},
	})
}

func TestConformance_overPgBouncer(t *testing.T) {
	db := migrated(t)
	pooler := servers.StartPgBouncer(t, servers.SharedPostgres(t), "transaction")
	drivertest.Run(t, drivertest.Service{New: drivers(pooler.URL(db.Name()))})
}

func BenchmarkAcquireRelease(b *testing.B) { drivertest.Benchmark(b, drivers(migrated(b).URL())) }
