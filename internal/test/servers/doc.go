// Package servers starts real servers for tests: one Redis, Sentinel or Cluster with masters and
// replicas, a quorum, a PostgreSQL, alone or with a standby, or a PgBouncer before it. Each has a
// free loopback port and a temporary directory, and belongs to the test that started it:
//
//	s := servers.StartSentinel(t)
//	old := s.Master()
//	old.Detach()
//	// ... acquire a lock ...
//	old.Kill()
//	master := s.AwaitMaster(old) // ... which it does not know
//
// The cleanup of the test stops a server, and prints the end of its log if the test failed. On
// Linux a server also dies with the test process. One goroutine waits for each server, so a check
// for leaked goroutines runs in TestMain, or in an earlier cleanup.
package servers
