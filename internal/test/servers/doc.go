// Package servers starts real servers for tests: one Redis, a Sentinel with its master and
// replicas, a Cluster, a quorum of independent servers, a PostgreSQL, alone or with a standby, or a
// PgBouncer before it.
//
// Each server runs on a free loopback port, keeps its files in a temporary directory and belongs to
// the test that started it:
//
//	func TestLock_survivesARestart(t *testing.T) {
//		srv := servers.StartRedis(t)
//		client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
//		// ...
//		srv.Kill()
//		srv.Restart()
//	}
//
// A failover follows a Kill or Pause, and AwaitMaster waits for it. It loses what the master
// acknowledged after its Detach:
//
//	s := servers.StartSentinel(t)
//	old := s.Master()
//	old.Detach()
//	// ... acquire a lock, which then ...
//	old.Kill()
//	master := s.AwaitMaster(old) // ... does not know
//
// The tests of a package share one PostgreSQL, with a database for each test:
//
//	db := servers.SharedPostgres(t).NewDatabase(t)
//	pool, err := pgxpool.New(ctx, db.URL())
//
// A server is stopped in the test's cleanup. On Linux it also dies with the test process, however
// that ends; elsewhere a test process that is killed leaves its servers behind. If the test failed,
// the end of the server's log is printed with it.
//
// While a server runs, one goroutine waits for it. A check for leaked goroutines therefore has to
// run after the server's cleanup: from TestMain, or from a cleanup that was registered before the
// server was started.
package servers
